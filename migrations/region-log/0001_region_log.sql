-- The log of one region, where there is no etcd: one file for each region, one
-- process at a time. Registrations and the leader are not stored: they live
-- and die with the process.

-- Who the log is. There is exactly one row.
create table origin (
    only_row integer not null,
    -- 16 random bytes, made once
    history blob not null,
    -- the last number given to a writer or as an epoch; none is given twice
    numbers integer not null,
    constraint origin_pk primary key (only_row),
    constraint origin_is_one check (only_row = 1),
    constraint origin_history_is_16_bytes check (length(history) = 16)
) strict;

-- The index of the newest entry, 0 at first. Without the row the log takes no
-- entry, instead of beginning anew.
create table head (
    only_row integer not null,
    log_index integer not null,
    constraint head_pk primary key (only_row),
    constraint head_is_one check (only_row = 1)
) strict;

-- The entries after the snapshot.
create table entry (
    log_index integer not null,
    writer integer not null,
    seq integer not null,
    body blob not null,
    constraint entry_pk primary key (log_index),
    -- what makes a repeated append land once
    constraint entry_once unique (writer, seq)
) strict;

-- The state that stands for the entries before, if there is one.
create table snapshot (
    only_row integer not null,
    log_index integer not null,
    body blob not null,
    constraint snapshot_pk primary key (only_row),
    constraint snapshot_is_one check (only_row = 1)
) strict;
