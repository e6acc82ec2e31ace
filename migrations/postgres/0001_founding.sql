-- The truth of the world: what is declared and defined, what is open, what the
-- regions reported, how each generation ended.
--
-- Names compare byte by byte (collate "C"): the order in which rows are locked
-- and pages are cut must not depend on a locale. Instants (`*_at`) are
-- milliseconds since 1970 on this database's clock; a check of them needs no
-- time zone. Documents are JSON in `text`, byte for byte as they were written:
-- all readers must see the same bytes, and `jsonb` refuses the \u0000 that a
-- participant may well put into its output. Histories and digests are
-- hexadecimal, so that they can be read in a terminal.

create table regions (
    name        text collate "C" not null,
    declared_at bigint not null,
    -- The last sign of life of any of its agents, of its current history.
    heard_at    bigint,
    constraint regions_pk primary key (name)
);

-- The lives of each region's log. Another one than the current is a restored
-- backup or an emptied etcd, and somebody has to say what it is.
create table histories (
    region        text collate "C" not null,
    history       text collate "C" not null,
    standing      text not null,
    -- The highest log index that was seen of it; a lower head means that the
    -- region lost entries.
    highest_index bigint not null,
    first_seen_at bigint not null,
    constraint histories_pk primary key (region, history),
    constraint histories_region_fk foreign key (region) references regions (name),
    constraint histories_standing_known check (standing in ('current', 'superseded', 'unknown'))
);

create unique index histories_one_current on histories (region) where standing = 'current';

create table agents (
    region   text collate "C" not null,
    name     text collate "C" not null,
    -- Random for each life of the process.
    instance text collate "C" not null,
    address  text not null,
    heard_at bigint not null,
    constraint agents_pk primary key (region, name, instance),
    constraint agents_region_fk foreign key (region) references regions (name)
);

-- A name's row is never removed, so that its numbers go on when it is deleted
-- and defined again. This row is the one lock of everything below it.
create table barriers (
    namespace text collate "C" not null,
    name      text collate "C" not null,
    -- Counts the changes of its definition across deletions; 0 while the first
    -- definition is being written, never in a committed row.
    revision  bigint not null,
    deleted   boolean not null,
    next_n    bigint not null,
    constraint barriers_pk primary key (namespace, name),
    constraint barriers_next_n_positive check (next_n >= 1)
);

create table specs (
    namespace  text collate "C" not null,
    name       text collate "C" not null,
    revision   bigint not null,
    spec       text not null,
    defined_at bigint not null,
    constraint specs_pk primary key (namespace, name, revision),
    constraint specs_barrier_fk foreign key (namespace, name) references barriers (namespace, name)
);

-- What lists are filtered by, out of the specs.
create table spec_regions (
    namespace text collate "C" not null,
    name      text collate "C" not null,
    revision  bigint not null,
    region    text collate "C" not null,
    constraint spec_regions_pk primary key (namespace, name, revision, region),
    constraint spec_regions_spec_fk foreign key (namespace, name, revision)
        references specs (namespace, name, revision)
);

create table spec_labels (
    namespace text collate "C" not null,
    name      text collate "C" not null,
    revision  bigint not null,
    label     text collate "C" not null,
    value     text collate "C" not null,
    constraint spec_labels_pk primary key (namespace, name, revision, label),
    constraint spec_labels_spec_fk foreign key (namespace, name, revision)
        references specs (namespace, name, revision)
);

create table generations (
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    n           bigint not null,
    -- The key that callers of a keyed barrier chose, and which retry of it.
    key         text collate "C",
    round       bigint not null,
    -- The spec it was opened with.
    revision    bigint not null,
    opened_at   bigint not null,
    deadline_at bigint,
    -- The life of the database in which it was opened.
    era         text not null,
    -- Its end: all of these together, once.
    verdict     text,
    decided     text,
    digest      text,
    decided_at  bigint,
    -- Whether every region has applied the end.
    settled     boolean not null,
    -- Grows with every change of the generation or of a report of it.
    version     bigint not null,
    constraint generations_pk primary key (namespace, name, n),
    constraint generations_spec_fk foreign key (namespace, name, revision)
        references specs (namespace, name, revision),
    constraint generations_key_round_once unique (namespace, name, key, round),
    constraint generations_verdict_known check (verdict in ('released', 'broken')),
    constraint generations_decided_whole
        check (num_nonnulls(verdict, decided, digest, decided_at) in (0, 4)),
    constraint generations_settled_is_decided check (not settled or decided is not null)
);

create index generations_by_age on generations (opened_at, namespace, name, n);
create index generations_gathering on generations (namespace, name) where decided is null;
create index generations_due on generations (deadline_at) where decided is null and deadline_at is not null;
create index generations_unsettled on generations (opened_at, namespace, name, n) where not settled;

-- The latest report of each region, of whichever history is current.
create table reports (
    namespace   text collate "C" not null,
    name        text collate "C" not null,
    n           bigint not null,
    region      text collate "C" not null,
    history     text collate "C" not null,
    shard       bigint not null,
    log_index   bigint not null,
    complete    boolean not null,
    -- The digest of the outcome that the region has applied.
    applied     text,
    body        text not null,
    received_at bigint not null,
    constraint reports_pk primary key (namespace, name, n, region),
    constraint reports_generation_fk foreign key (namespace, name, n)
        references generations (namespace, name, n)
);

-- Records that could not be read, at the place they had on the bus.
create table poison (
    topic       text collate "C" not null,
    partition   bigint not null,
    position    bigint not null,
    bytes       bytea not null,
    error       text not null,
    received_at bigint not null,
    constraint poison_pk primary key (topic, partition, position)
);
