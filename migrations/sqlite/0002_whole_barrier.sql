-- As ../postgres has it, where each is explained. A check that is added with a
-- column may speak of the others.

alter table regions add column era text;
alter table regions add column drained_until integer;
alter table regions add column drained_actor text;
alter table regions add column drained_reason text
    constraint regions_drained_whole check ((drained_until is null) = (drained_reason is null));

update regions set era = (select era from identity)
    where exists (select 1 from histories where region = regions.name and standing = 'current');

alter table barriers add column retention_ms integer not null default 2592000000;
alter table barriers add column retention_generations integer not null default 1000;

alter table specs add column after_namespace text;
alter table specs add column after_name text
    constraint specs_after_whole check ((after_namespace is null) = (after_name is null));

create index specs_after on specs (namespace, name, revision) where after_name is not null;

alter table generations add column carry integer;
alter table generations add column closed integer not null default 0
    constraint generations_closed_is_decided check (not closed or decided is not null);

create index generations_by_end on generations (namespace, name, closed, decided_at) where decided_at is not null;
create index generations_by_number on generations (namespace, name, closed, n) where decided_at is not null;
create index generations_by_spec on generations (namespace, name, revision);

alter table reports add column waiver integer not null default 0;

create table waivers (
    namespace    text not null,
    name         text not null,
    n            integer not null,
    region       text not null,
    revision     integer not null,
    participants text,
    actor        text,
    reason       text not null,
    constraint waivers_pk primary key (namespace, name, n, region),
    constraint waivers_generation_fk foreign key (namespace, name, n)
        references generations (namespace, name, n)
) strict;

create table audit (
    position   integer not null,
    at         integer not null,
    action     text not null,
    namespace  text,
    name       text,
    generation text,
    actor      text,
    reason     text not null,
    object     text not null,
    constraint audit_pk primary key (position autoincrement)
) strict;

create index audit_of_barrier on audit (namespace, name, position);
create index audit_of_actor on audit (actor, position);
