/*
Two-phase commit with recovery: transactions/coordinator.py and transactions/recovery.py on PostgreSQL. One message, one
coordinator that is killed or loses its connections and handles the message again, two participants, two recoveries at once.

Broken variants: FORGET_AFTER_FIRST_COMMIT, DECISIONS_READ_FIRST, FORGET_WHAT_WAS_READ_LAST, NO_LOCK.
*/
#define FAULTS 1
#include "common.pml"

#define PARTICIPANTS 2
#ifndef RECOVERIES
#define RECOVERIES 1
#endif
#define TRANSACTIONS (3 - RECOVERIES)   /* with two recoveries, the message is not handled again: that has too many states */

/* a decision in the queue's database; the coordinator's transaction, which holds the advisory lock, is open while WRITTEN */
#define NONE 0
#define WRITTEN 1
#define COMMITTED 2
#define ROLLED_BACK 3
#define FORGOTTEN 4
/* a branch at a participant; it ends as COMMITTED or ROLLED_BACK */
#define OPEN 5
#define PREPARED 6

byte decision[TRANSACTIONS];
byte branch[TRANSACTIONS * PARTICIPANTS];
bool cut[TRANSACTIONS];   /* the coordinator's connections of this transaction are gone, and the server does not know yet */
bool sent[TRANSACTIONS];  /* COMMIT has reached the queue's database */
bool handled;             /* the message is removed */

#define BRANCH(t, p) branch[(t) * PARTICIPANTS + (p)]
#define BOTH(t, state) (BRANCH(t, 0) == state && BRANCH(t, 1) == state)
#define LOCKED(t) (decision[t] == WRITTEN)

inline commit_home(t) {
    assert(!handled && BOTH(t, PREPARED));
    decision[t] = COMMITTED; handled = true
}

/* whatever was committed at a participant was decided, and nothing that was decided is rolled back */
inline end_branch(t, p, state) {
    assert(state == ROLLED_BACK || decision[t] == COMMITTED);
    assert(state == COMMITTED || (decision[t] != COMMITTED && decision[t] != FORGOTTEN));
    BRANCH(t, p) = state
}

inline forget(t) {
    assert(decision[t] == FORGOTTEN || BOTH(t, COMMITTED));
    decision[t] = FORGOTTEN
}

proctype coordinator() {
    byte t = 0;
begin:
    do
    :: handled -> break
    :: else ->
       d_step { BRANCH(t, 0) = OPEN; BRANCH(t, 1) = OPEN; decision[t] = WRITTEN }   /* receive, handler, record_decision */
       STEP(BRANCH(t, 0) == OPEN -> BRANCH(t, 0) = PREPARED)
       STEP(BRANCH(t, 1) == OPEN -> BRANCH(t, 1) = PREPARED)
       if
       :: d_step { sent[t] = true }   /* COMMIT */
       :: d_step { FAULT } goto killed
       :: d_step {   /* the server refuses to commit: not_decided, and the coordinator rolls back everywhere */
              FAULT; decision[t] = ROLLED_BACK; end_branch(t, 0, ROLLED_BACK); end_branch(t, 1, ROLLED_BACK)
          }
          goto again
       fi;
       STEP(commit_home(t))
       STEP(if :: BRANCH(t, 0) == PREPARED -> end_branch(t, 0, COMMITTED) :: else fi)
#ifdef FORGET_AFTER_FIRST_COMMIT
       STEP(forget(t))
#endif
       STEP(if :: BRANCH(t, 1) == PREPARED -> end_branch(t, 1, COMMITTED) :: else fi)
       STEP(if :: decision[t] != FORGOTTEN -> forget(t) :: else fi)
    od;
    goto stop;
killed:   /* also a lost connection: what was prepared is left to recovery, and the message is received again */
    atomic { cut[t] = true; run server(t) }
    !LOCKED(t);   /* the message's row is locked until then */
again:
    t++;
    if
    :: t < TRANSACTIONS -> goto begin
    :: else
    fi;
stop:
    skip
}

/* The server notices lost connections one by one. What had reached it may still be carried out. */
proctype server(byte t) {
    byte p;
    do
    :: cut[t] && decision[t] == WRITTEN ->
       if
       :: d_step { sent[t] -> commit_home(t) }
       :: d_step { decision[t] = ROLLED_BACK }
       fi
    :: p < PARTICIPANTS ->
       if
       :: d_step { BRANCH(t, p) == OPEN -> BRANCH(t, p) = ROLLED_BACK }
       :: d_step { BRANCH(t, p) == OPEN -> BRANCH(t, p) = PREPARED }
       :: BRANCH(t, p) != OPEN
       fi;
       p++
    :: decision[t] != WRITTEN && p == PARTICIPANTS -> break
    od
}

#define IN_DOUBT(t) (BRANCH(t, 0) == PREPARED || BRANCH(t, 1) == PREPARED)
#define BUSY(t) (decision[t] == COMMITTED || IN_DOUBT(t))

/* What one pass of recover does about one transaction. It treats transactions independently of one another. */
proctype recovery() {
    byte t, p;
    bool old, found[PARTICIPANTS], running, decided, unreachable, undone;
end:
    do
    :: atomic {
           if
           :: BUSY(0) -> t = 0
           :: TRANSACTIONS == 2 && BUSY(TRANSACTIONS - 1) -> t = TRANSACTIONS - 1
           fi;
           old = (decision[t] == COMMITTED)   /* list_decisions */
#ifdef DECISIONS_READ_FIRST
           ; decided = old
#endif
       }
       do
       :: d_step { p < PARTICIPANTS -> found[p] = (BRANCH(t, p) == PREPARED); p++ }
       :: d_step { p < PARTICIPANTS && FAULT; unreachable = true; p++ }
       :: p == PARTICIPANTS -> break
       od;
#ifndef NO_LOCK
       atomic { running = (LOCKED(t) && (found[0] || found[1])) }   /* probe_transaction */
#endif
#ifndef DECISIONS_READ_FIRST
       atomic { decided = (decision[t] == COMMITTED) }
#endif
#ifdef FORGET_WHAT_WAS_READ_LAST
       atomic { old = decided }
#endif
       atomic { undone = (running && !decided); p = 0 }
       do
       :: p < PARTICIPANTS ->
          d_step {
              if
              :: !found[p] || (running && !decided)
              :: else ->
                 if
                 :: BRANCH(t, p) == PREPARED -> end_branch(t, p, (decided -> COMMITTED : ROLLED_BACK))
                 :: else -> undone = true   /* another session has ended it */
                 fi
              fi;
              p++
          }
       :: p == PARTICIPANTS -> break
       od;
       atomic {
           if
           :: old && !undone && !unreachable && decision[t] == COMMITTED -> forget(t)
           :: else
           fi;
           t = 0; p = 0; old = false; found[0] = false; found[1] = false;
           running = false; decided = false; unreachable = false; undone = false
       }
    od
}

#define GOAL ((handled || RECOVERIES == 2) && !BUSY(0) && !BUSY(TRANSACTIONS - 1))
AT_REST

init {
    atomic {
        RUN_AT_REST run coordinator(); run recovery();
#if RECOVERIES == 2
        run recovery();
#endif
    }
}

CLAIM(everything_ends, <> [] GOAL)
