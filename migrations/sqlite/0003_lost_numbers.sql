-- As ../postgres has it, where each is explained.

alter table barriers add column lost_from integer
    constraint barriers_lost_below_next check (lost_from >= 1 and lost_from < next_n);
