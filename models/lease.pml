/*
A message that is held by a lease: pipeline/lease.py, recoverability/leases.py and the procedures of leases. Two workers handle
one message, and a supervisor returns leases. A worker may be killed, be stopped for longer than its lease, or fail, and the
reply to its commit may be lost.

Broken variants: COMMIT_BEFORE_FENCE, FENCED_BY_ROW, COUNTED_AT_DEATH, EXPIRY_UNSEEN.
*/
#include "common.pml"

#define ATTEMPTS 3   /* the attempt after which the message moves to the error queue */
#define LEASES 8

/* where the message is */
#define QUEUE 0
#define LEASED 1
#define DONE 2
#define ERROR_QUEUE 3

byte place;
byte token;              /* of the lease in the table; each lease has another one */
byte leases;             /* how many there were */
byte holder;             /* who has the lease in the table */
bool expired;            /* whether it is due */
byte attempts;
bool counted[LEASES];    /* whether the end of a lease was counted as an attempt */
byte committed;          /* how often the work of a handler was committed */
byte dead[2];            /* the lease that a worker had when it was killed, until its supervisor has looked; 0: none */

#define GOAL (place == DONE || place == ERROR_QUEUE)
#ifdef FENCED_BY_ROW
#define HELD(t) (place == LEASED)
#else
#define HELD(t) (place == LEASED && token == (t))
#endif

/* return_lease or return_expired, record_failure, and the move after the last attempt: one transaction */
inline give_back() {
    assert(!counted[token]);
    counted[token] = true;
    attempts++;
    token = 0;
    expired = false;
    if
    :: attempts >= ATTEMPTS -> place = ERROR_QUEUE
    :: else -> place = QUEUE
    fi
}

inline commit(w) {
    assert(holder == w);
#ifndef COMMIT_BEFORE_FENCE
    committed++;
#endif
    assert(committed == 1);
    place = DONE;
    token = 0
}

proctype worker(byte w) {
    byte mine;
    bool fails;
next:
    do
    :: GOAL -> break
    :: d_step {
           place == QUEUE ->   /* lease_messages */
           leases++; token = leases; mine = leases; holder = w; expired = false; place = LEASED
       }
       if   /* the handler */
       :: skip
       :: d_step { FAULT } fails = true
       :: d_step { FAULT; if :: HELD(mine) -> expired = true :: else fi }   /* stopped for longer than the lease */
       :: d_step { FAULT } goto killed
       fi;
#ifdef COMMIT_BEFORE_FENCE
       d_step { committed++; assert(committed == 1) };
#endif
again:
       if
       :: d_step { !fails && HELD(mine) -> commit(w) }              /* end_lease and COMMIT */
       :: d_step { fails && HELD(mine) -> give_back() }
       :: d_step { !HELD(mine) -> skip }                            /* LeaseLost: nothing is committed, nothing counted */
       :: d_step { FAULT; if :: !fails && HELD(mine) -> commit(w) :: else fi } goto again   /* the reply is lost */
       :: d_step { FAULT } goto killed
       fi;
       d_step { fails = false; mine = 0 }
    od;
    goto stop;
killed:
    atomic {
        fails = false;
        dead[w] = mine;
#ifdef COUNTED_AT_DEATH
        counted[mine] = true; attempts++;
#endif
        mine = 0
    };
    goto next;
stop:
    skip
}

/* the supervisor that sees its worker die, and the periodic task */
proctype supervisor() {
    do
    :: GOAL -> break
#ifdef COUNTED_AT_DEATH
    :: d_step { dead[0] && HELD(dead[0]) -> expired = true; dead[0] = 0 }
    :: d_step { dead[1] && HELD(dead[1]) -> expired = true; dead[1] = 0 }
#else
    :: d_step { dead[0] && HELD(dead[0]) -> give_back(); dead[0] = 0 }
    :: d_step { dead[1] && HELD(dead[1]) -> give_back(); dead[1] = 0 }
#endif
    :: d_step { dead[0] && HELD(dead[0]) -> expired = true; dead[0] = 0 }   /* it died too */
    :: d_step { dead[1] && HELD(dead[1]) -> expired = true; dead[1] = 0 }
    :: d_step { dead[0] && !HELD(dead[0]) -> dead[0] = 0 }
    :: d_step { dead[1] && !HELD(dead[1]) -> dead[1] = 0 }
#ifndef EXPIRY_UNSEEN
    :: d_step { place == LEASED && expired -> give_back() }
#endif
    od
}

AT_REST

init {
    atomic { RUN_AT_REST run worker(0); run worker(1); run supervisor() }
}

CLAIM(the_message_ends, <> GOAL)
