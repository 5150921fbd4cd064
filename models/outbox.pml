/*
The outbox: outbox/processing.py and outbox/cleanup.py. A message that its sender sent twice (two rows with one message id),
two workers, and the task that sends what was left behind. The queue and the business data are in different databases.

PESSIMISTIC records the message before its handler runs. Broken variants: STORED_IN_SECOND_TRANSACTION, NO_DISPATCH_RECORD,
FORGET_AFTER_REPEAT.
*/
#include "common.pml"

#define ROWS 2
#define FREE 0
#define GONE 9
#define NONE 9
#define NOBODY 0
#define LEFT_BEHIND 2
#define MINE(who) ((who) + 1)

/* kinds of events */
#define RECEIVED 1
#define UNKNOWN 2
#define KNOWN_UNSENT 3
#define KNOWN_SENT 4
#define STORED 5
#define SENT 6
#define SENT_BEFORE 7
#define SETTLED 8
#define FORGOTTEN 9
#define REMOVED 10
#define KILLED 11

/* the queue's database */
byte row[ROWS];         /* FREE, GONE, or who has removed it in an open transaction */
byte sent;              /* how often the message's operations were sent */
bool dispatch;          /* rowpost.dispatch contains the message */
/* the business database */
byte done;              /* how often the handler's work was committed */
bool record;            /* rowpost.outbox contains the message, committed */
byte recording;         /* whose open transaction has inserted that row: other inserts wait for it */
bool operations;        /* rowpost.outbox_operations contains the message, committed */
byte locked;            /* whose open transaction has locked that row */

inline give_back(w, r) {
    if
    :: r != NONE && row[r] == MINE(w) -> row[r] = FREE
    :: else
    fi;
    r = NONE
}

inline end_business(w) {
    if
    :: recording == MINE(w) -> recording = NOBODY
    :: else
    fi;
    if
    :: locked == MINE(w) -> locked = NOBODY
    :: else
    fi
}

/* what was sent, its record and the removal of the row are one transaction of the queue's database */
inline send(w, r) {
    sent++; assert(sent == 1);
    if
    :: r != NONE -> row[r] = GONE
    :: else
    fi;
#ifndef NO_DISPATCH_RECORD
    dispatch = true;
#endif
    OBSERVE(SENT, w, 0)
}

inline settle(w) {
    operations = false; end_business(w);
    OBSERVE(SETTLED, w, 0)
}

inline forget(w) {
    dispatch = false;
    OBSERVE(FORGOTTEN, w, 0)
}

#define MAY_RECORD (recording == NOBODY || recording == MINE(w))
#define MAY_LOCK (locked == NOBODY || locked == MINE(w))

proctype worker(byte w) {
    byte r = NONE;
    byte later;    /* this worker has sent the operations of its own handler: 1 settle them, 2 then forget the dispatch */
next:
    do
    :: row[0] == GONE && row[1] == GONE && later == 0 -> break
    :: d_step { later == 1 && MAY_LOCK -> settle(w); later = 2 }   /* with another message, or when the queue is empty */
    :: d_step { later == 2 -> forget(w); later = 0 }
    :: d_step { FAULT } goto killed   /* also with nothing to do */
    :: d_step { row[0] == FREE || row[1] == FREE -> r = (row[0] == FREE -> 0 : 1); row[r] = MINE(w); OBSERVE(RECEIVED, w, r) }
#ifdef PESSIMISTIC
       if
       :: d_step { FAULT } goto killed
       :: d_step { MAY_RECORD && record } goto look_up
       :: d_step { MAY_RECORD && !record -> recording = MINE(w); OBSERVE(UNKNOWN, w, 0) } goto handle
       fi;
#endif
look_up:
       if
       :: d_step { FAULT } goto killed
       :: d_step { !record -> OBSERVE(UNKNOWN, w, 0) } goto handle
       :: d_step { record && !operations && MAY_LOCK -> OBSERVE(KNOWN_SENT, w, 0) } goto duplicate
       :: d_step { record && operations && MAY_LOCK && later != 1 -> locked = MINE(w); OBSERVE(KNOWN_UNSENT, w, 0) } goto repeat
       :: d_step { record && operations && MAY_LOCK && later == 1 -> OBSERVE(KNOWN_UNSENT, w, 0) } goto duplicate
       fi;
handle:
       if
       :: d_step { FAULT } goto killed
       :: d_step { FAULT; end_business(w); give_back(w, r) } goto next   /* the handler fails */
       :: d_step { MAY_RECORD && record && recording != MINE(w) -> end_business(w) } goto look_up   /* another worker was faster */
       :: d_step {
              MAY_RECORD && (!record || recording == MINE(w)) ->
              record = true; done++; assert(done == 1);
#ifndef STORED_IN_SECOND_TRANSACTION
              operations = true;
#endif
              end_business(w); OBSERVE(STORED, w, 0)
          }
       fi;
#ifdef STORED_IN_SECOND_TRANSACTION
       STEP(operations = true)
#endif
       if
       :: d_step { FAULT } goto killed
       :: d_step { FAULT; give_back(w, r) } goto next   /* the queue's database refuses: retried without the handler */
       :: d_step { !dispatch -> send(w, r); r = NONE; later = 1 }
       :: d_step { dispatch -> give_back(w, r); OBSERVE(SENT_BEFORE, w, 0) }
       fi;
       goto next;
duplicate:
       STEP(row[r] = GONE; r = NONE; OBSERVE(REMOVED, w, 0))
       goto next;
repeat:
       if
       :: d_step { FAULT } goto killed
       :: d_step { FAULT; end_business(w); give_back(w, r) } goto next
       :: d_step { !dispatch -> send(w, r); r = NONE }
       :: d_step { dispatch -> give_back(w, r); OBSERVE(SENT_BEFORE, w, 0) }
       fi;
       STEP(settle(w))
#ifdef FORGET_AFTER_REPEAT
       STEP(forget(w))
#endif
    od;
    goto stop;
killed:
    atomic { later = 0; OBSERVE(KILLED, w, 0) }
    if   /* the two servers notice one after the other */
    :: d_step { give_back(w, r) } d_step { end_business(w) }
    :: d_step { end_business(w) } d_step { give_back(w, r) }
    fi;
    goto next;
stop:
    skip
}

/* send_left_behind, in every supervisor: for operations whose message was purged, or is in the error queue */
proctype left_behind() {
    byte r = NONE;
#define w LEFT_BEHIND
end:
    do
    :: d_step { operations && MAY_LOCK -> locked = MINE(w) }
       if
       :: d_step { !dispatch -> send(w, r) }
       :: d_step { dispatch }
       :: d_step { FAULT } goto lost
       fi;
       if
       :: d_step { settle(w) }
       :: d_step { FAULT } goto lost
       fi
    od;
lost:
    atomic { end_business(w) }
    goto end
#undef w
}

proctype purge() {
    if
    :: d_step { row[0] == FREE -> row[0] = GONE }
    :: d_step { row[1] == FREE -> row[1] = GONE }
    :: skip
    fi
}

#define GOAL (row[0] == GONE && row[1] == GONE && sent == done && !operations)
AT_REST

init {
    atomic {
        RUN_AT_REST run worker(0); run worker(1);
#ifndef TRACE
        run left_behind(); run purge()
#endif
    }
}

CLAIM(work_and_messages_agree, <> [] GOAL)
