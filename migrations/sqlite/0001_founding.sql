-- The truth of the world, as ../postgres has it, for one process: the same
-- tables, columns and constraints, where each is explained. Text compares byte
-- by byte here anyway, and truth values are 0 and 1.

create table regions (
    name        text not null,
    declared_at integer not null,
    heard_at    integer,
    constraint regions_pk primary key (name)
) strict;

create table histories (
    region        text not null,
    history       text not null,
    standing      text not null,
    highest_index integer not null,
    first_seen_at integer not null,
    constraint histories_pk primary key (region, history),
    constraint histories_region_fk foreign key (region) references regions (name),
    constraint histories_standing_known check (standing in ('current', 'superseded', 'unknown'))
) strict;

create unique index histories_one_current on histories (region) where standing = 'current';

create table agents (
    region   text not null,
    name     text not null,
    instance text not null,
    address  text not null,
    heard_at integer not null,
    constraint agents_pk primary key (region, name, instance),
    constraint agents_region_fk foreign key (region) references regions (name)
) strict;

create table barriers (
    namespace text not null,
    name      text not null,
    revision  integer not null,
    deleted   integer not null,
    next_n    integer not null,
    constraint barriers_pk primary key (namespace, name),
    constraint barriers_next_n_positive check (next_n >= 1)
) strict;

create table specs (
    namespace  text not null,
    name       text not null,
    revision   integer not null,
    spec       text not null,
    defined_at integer not null,
    constraint specs_pk primary key (namespace, name, revision),
    constraint specs_barrier_fk foreign key (namespace, name) references barriers (namespace, name)
) strict;

create table spec_regions (
    namespace text not null,
    name      text not null,
    revision  integer not null,
    region    text not null,
    constraint spec_regions_pk primary key (namespace, name, revision, region),
    constraint spec_regions_spec_fk foreign key (namespace, name, revision)
        references specs (namespace, name, revision)
) strict;

create table spec_labels (
    namespace text not null,
    name      text not null,
    revision  integer not null,
    label     text not null,
    value     text not null,
    constraint spec_labels_pk primary key (namespace, name, revision, label),
    constraint spec_labels_spec_fk foreign key (namespace, name, revision)
        references specs (namespace, name, revision)
) strict;

create table generations (
    namespace   text not null,
    name        text not null,
    n           integer not null,
    key         text,
    round       integer not null,
    revision    integer not null,
    opened_at   integer not null,
    deadline_at integer,
    era         text not null,
    verdict     text,
    decided     text,
    digest      text,
    decided_at  integer,
    settled     integer not null,
    version     integer not null,
    constraint generations_pk primary key (namespace, name, n),
    constraint generations_spec_fk foreign key (namespace, name, revision)
        references specs (namespace, name, revision),
    constraint generations_key_round_once unique (namespace, name, key, round),
    constraint generations_verdict_known check (verdict in ('released', 'broken')),
    constraint generations_decided_whole
        check ((verdict is null) + (decided is null) + (digest is null) + (decided_at is null) in (0, 4)),
    constraint generations_settled_is_decided check (not settled or decided is not null)
) strict;

create index generations_by_age on generations (opened_at, namespace, name, n);
create index generations_gathering on generations (namespace, name) where decided is null;
create index generations_due on generations (deadline_at) where decided is null and deadline_at is not null;
create index generations_unsettled on generations (opened_at, namespace, name, n) where not settled;

create table reports (
    namespace   text not null,
    name        text not null,
    n           integer not null,
    region      text not null,
    history     text not null,
    shard       integer not null,
    log_index   integer not null,
    complete    integer not null,
    applied     text,
    body        text not null,
    received_at integer not null,
    constraint reports_pk primary key (namespace, name, n, region),
    constraint reports_generation_fk foreign key (namespace, name, n)
        references generations (namespace, name, n)
) strict;

create table poison (
    topic       text not null,
    partition   integer not null,
    position    integer not null,
    bytes       blob not null,
    error       text not null,
    received_at integer not null,
    constraint poison_pk primary key (topic, partition, position)
) strict;

-- Who this database is, and the clock it never turns back: the life of an
-- embedded database is its file's.
create table identity (
    only_one integer not null,
    era      text not null,
    clock_at integer not null,
    constraint identity_pk primary key (only_one),
    constraint identity_only_one check (only_one = 1)
) strict;
