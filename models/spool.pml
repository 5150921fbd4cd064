/*
Spool and drain: Drain in archive/source/drain.py with the spool's procedures, and what Spark does with it. Two streams
with a checkpoint and a target each want to drain one queue. Message 0 gets its row version first and may commit last.

Broken variants: ROW_VERSIONS_AS_OFFSETS, DROP_WHEN_LOGGED, READ_WITHOUT_OWNER, MOVED_IN_TWO_TRANSACTIONS.
*/
#include "common.pml"

#define MESSAGES 2
#define STREAMS 2
#define NOBODY 9
#define NONE 0

/* where a message is */
#define UNCOMMITTED 0
#define QUEUED 1
#define SPOOLED 2
#define DROPPED 3
#define LOST 4

byte place[MESSAGES];
byte number[MESSAGES];     /* of the message in the spool, 1 or higher */
byte last;                 /* the last number that was assigned */
byte archived[MESSAGES];   /* how often it is in a target */
byte owner = NOBODY;       /* rowpost.spool */
bool confirmed;
/* each stream's checkpoint: the range of the batch that was logged last; whether the target has it, and Spark's commit log */
byte above[STREAMS], upto[STREAMS];
bool logged[STREAMS], written[STREAMS], committed[STREAMS];

#define IN_SPOOL(m) (place[m] == SPOOLED)
#define HIGHEST (IN_SPOOL(0) && (!IN_SPOOL(1) || number[0] > number[1]) -> number[0] : (IN_SPOOL(1) -> number[1] : 0))
#define GOAL (archived[0] == 1 && archived[1] == 1)

#ifdef ROW_VERSIONS_AS_OFFSETS
#define NEXT(m) ((m) + 1)
#else
#define NEXT(m) (last + 1)
#endif

inline move_one(m) {
    if
    :: place[m] == QUEUED -> number[m] = NEXT(m); last++; place[m] = SPOOLED
    :: else
    fi
}

inline drop_one(m, n) {
    if
    :: IN_SPOOL(m) && number[m] <= n -> place[m] = (archived[m] == 1 -> DROPPED : LOST); assert(place[m] != LOST)
    :: else
    fi
}

/* drop_spool, of a batch that is committed */
inline drop(s, n) {
    if
    :: owner == s -> drop_one(0, n); drop_one(1, n)
    :: else   /* SpoolTaken */
    fi
}

inline archive(m, s) {
    if
    :: IN_SPOOL(m) && number[m] > above[s] && number[m] <= upto[s] -> archived[m]++; assert(archived[m] == 1)
    :: else
    fi
}

proctype stream(byte s) {
    byte end;
#ifdef MOVED_IN_TWO_TRANSACTIONS
    bool taken[MESSAGES];
#endif
next:
    do
    :: GOAL -> break
    :: d_step { logged[s] && !committed[s] -> skip } goto run_batch   /* a run begins with the batch that was logged */
    :: d_step { (!logged[s] || committed[s]) && owner == s && HIGHEST > upto[s] -> end = HIGHEST } goto log_batch
    :: d_step {   /* move_to_spool */
           (!logged[s] || committed[s]) && !(owner == s && HIGHEST > upto[s]) &&
           (owner == NOBODY || owner == s || !confirmed) && (place[0] == QUEUED || place[1] == QUEUED || owner != s) ->
           if
           :: owner != s -> owner = s; confirmed = false
           :: else
           fi;
#ifdef MOVED_IN_TWO_TRANSACTIONS
           end = 0
       }
       STEP(taken[0] = (place[0] == QUEUED); taken[1] = (place[1] == QUEUED); if :: taken[0] -> place[0] = LOST :: else fi; if :: taken[1] -> place[1] = LOST :: else fi)
       STEP(if :: taken[0] -> place[0] = QUEUED :: else fi; if :: taken[1] -> place[1] = QUEUED :: else fi; move_one(0); move_one(1); end = HIGHEST)
#else
           move_one(0); move_one(1);
           end = HIGHEST
       }
#endif
       if
       :: end <= upto[s] -> end = 0; goto next
       :: else
       fi;
log_batch:
       STEP(above[s] = upto[s]; upto[s] = end; logged[s] = true; written[s] = false; committed[s] = false; end = 0)
#ifdef DROP_WHEN_LOGGED
       STEP(drop(s, upto[s]))
#else
       STEP(drop(s, above[s]))   /* the end of the batch before */
#endif
run_batch:
       if
       :: d_step { FAULT } goto killed
#ifdef READ_WITHOUT_OWNER
       :: d_step { owner == s -> confirmed = true }
       :: d_step { owner != s }
#else
       :: d_step { owner == s -> confirmed = true }
       :: owner != s -> goto refused   /* SpoolTaken: for good, because this checkpoint has a batch that another stream has */
#endif
       fi;
       STEP(if :: !written[s] -> archive(0, s); archive(1, s); written[s] = true :: else fi)   /* read_spool; the target knows its batches */
       STEP(committed[s] = true)
    od;
    goto refused;
killed:
    atomic { end = 0 }
    goto next;
refused:
    skip
}

proctype sender(byte m) {
    place[m] = QUEUED
}

AT_REST

init {
    atomic { RUN_AT_REST run stream(0); run stream(1); run sender(0); run sender(1) }
}

CLAIM(every_message_is_archived, <> GOAL)
