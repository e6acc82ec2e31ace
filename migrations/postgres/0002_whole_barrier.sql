-- What overrides, retention, drained regions and a database that was set back
-- need to be remembered.

-- The life of the database in which all of the region was last heard, and a
-- planned absence: generations that open before `drained_until` go on without
-- the region.
alter table regions
    add column era            text collate "C",
    add column drained_until  bigint,
    add column drained_actor  text,
    add column drained_reason text,
    add constraint regions_drained_whole check ((drained_until is null) = (drained_reason is null));

-- This migration loses nothing: what is known of a region now, it has said in
-- the present life.
update regions set era = (select cast(system_identifier as text) from pg_control_system())
        || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)
    where exists (select 1 from histories where region = regions.name and standing = 'current');

-- Out of the definition in force: how long its finished generations are kept.
alter table barriers
    add column retention_ms          bigint not null default 2592000000,
    add column retention_generations bigint not null default 1000;

-- Out of the definition: the barrier whose break takes this one's generations
-- down.
alter table specs
    add column after_namespace text collate "C",
    add column after_name      text collate "C",
    add constraint specs_after_whole check ((after_namespace is null) = (after_name is null));

create index specs_after on specs (namespace, name, revision) where after_name is not null;

alter table generations
    -- The broken generation whose ok arrivals count here too.
    add column carry  bigint,
    -- Whether its reports are past their retention; its verdict is not.
    add column closed boolean not null default false,
    add constraint generations_closed_is_decided check (not closed or decided is not null);

-- What is past its retention, by time and by count, is found without a scan of
-- what is not.
create index generations_by_end on generations (namespace, name, closed, decided_at) where decided_at is not null;
create index generations_by_number on generations (namespace, name, closed, n) where decided_at is not null;
create index generations_by_spec on generations (namespace, name, revision);

-- The last waiver that the region has applied.
alter table reports add column waiver bigint not null default 0;

-- Who is no longer expected: one row says all of a generation's region.
create table waivers (
    namespace    text collate "C" not null,
    name         text collate "C" not null,
    n            bigint not null,
    region       text collate "C" not null,
    -- Counts the waivers of the region, from 1.
    revision     bigint not null,
    -- A list of ids and ranges; null is the whole region.
    participants text,
    actor        text,
    reason       text not null,
    constraint waivers_pk primary key (namespace, name, n, region),
    constraint waivers_generation_fk foreign key (namespace, name, n)
        references generations (namespace, name, n)
);

-- Who decided what participants had not. It outlives what it is about, so
-- nothing here refers to anything.
create table audit (
    position   bigint generated always as identity,
    at         bigint not null,
    action     text not null,
    namespace  text collate "C",
    name       text collate "C",
    generation text collate "C",
    actor      text collate "C",
    reason     text not null,
    object     text not null,
    constraint audit_pk primary key (position)
);

create index audit_of_barrier on audit (namespace, name, position);
create index audit_of_actor on audit (actor, position);
