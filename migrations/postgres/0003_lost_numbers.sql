-- Numbers from here on that are not there may have been lost when the database
-- was set back, and are taken up when a region tells of them; those below it
-- were forgotten, and stay so. Null where nothing was lost.
alter table barriers
    add column lost_from bigint,
    add constraint barriers_lost_below_next check (lost_from >= 1 and lost_from < next_n);
