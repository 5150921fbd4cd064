/*
Receive with kills and retries, in the mode sends_atomic_with_receive: two workers, and the supervisor that treats a message
whose worker died. README.md names the procedure or function of each step.

Message POISON fails in every attempt; the other one may fail. Broken variants: COUNT_IN_RECEIVING_TRANSACTION,
MOVE_WITHOUT_RECEIVING, REMOVE_BEFORE_HANDLING.
*/
#include "common.pml"

#define MESSAGES 2
#define POISON 1
#define RETRIES 1   /* immediate retries; the attempt after them is the last one */
#define LAST (RETRIES + 1)
#define FREE 0
#define GONE 9
#define NONE 9
#define WORKERS 2
#define SUPERVISOR 2

/* kinds of events */
#define RECEIVED 1
#define HANDLED 2
#define COUNTED 3
#define ROLLED_BACK 4
#define MOVED 5
#define KILLED 6
#define RECEIVED_AGAIN 7
#define NOT_RECEIVED 8

byte row[MESSAGES];      /* FREE, GONE, or who has removed it in an open transaction */
byte ended[MESSAGES];    /* how often a commit has ended the message: handled, or moved to the error queue */
byte counted[MESSAGES];  /* rowpost.failure, up to LAST */
byte failed[MESSAGES];   /* attempts that failed, and workers that died with the message in flight, up to LAST */
byte in_flight[WORKERS] = NONE;  /* shared memory, which the supervisor reads */
chan crashes = [2] of { byte };

#define MINE(who) ((who) + 1)
#define UP(number) number = (number < LAST -> number + 1 : LAST)

inline roll_back(who, m) {
    if
    :: row[m] == MINE(who) -> row[m] = FREE
    :: else
    fi
}

inline end_message(m) {
    row[m] = GONE;
    ended[m]++;
    assert(ended[m] == 1);
    counted[m] = 0;
    failed[m] = 0
}

/* the copy in the error queue, the removal and the end of the count are one transaction */
inline move(who, m) {
    assert(failed[m] == LAST);
    end_message(m);
    OBSERVE(MOVED, who, m)
}

inline count(who, m, n) {
    if
    :: row[m] != GONE -> UP(counted[m])
    :: else   /* nobody reads this count any more */
    fi;
    n = counted[m];
    OBSERVE(COUNTED, who, m)
}

proctype worker(byte w) {
    byte m = NONE, n;
    bool held, recent;   /* held: a savepoint was set; recent: a message failed in the last minute */
next:
    do
    :: row[0] == GONE && row[1] == GONE -> break
    :: d_step {
           row[0] == FREE || row[1] == FREE ->
           m = (row[0] == FREE -> 0 : 1);
#ifdef REMOVE_BEFORE_HANDLING
           row[m] = GONE;
#else
           row[m] = MINE(w);
#endif
           OBSERVE(RECEIVED, w, m)
       }
       STEP(in_flight[w] = m; held = recent)
       if
       :: m != POISON ->
          if
          :: d_step { FAULT } goto killed
          :: d_step { end_message(m); OBSERVE(HANDLED, w, m) } goto treated
          :: d_step {   /* the server refuses to commit */
                 FAULT; UP(failed[m]); recent = true; held = false;
                 roll_back(w, m); OBSERVE(ROLLED_BACK, w, m)
             }
          fi
       :: d_step { UP(failed[m]); recent = true }
       fi;
       if
       :: held || row[m] == MINE(w)
       :: d_step { row[m] == MINE(w) && FAULT; held = false; roll_back(w, m); OBSERVE(ROLLED_BACK, w, m) }   /* no second connection */
       :: row[m] != MINE(w)
       fi;
#ifdef COUNT_IN_RECEIVING_TRANSACTION
       n = counted[m] + 1;
#else
       STEP(count(w, m, n))
#endif
       if
       :: n == LAST && held -> STEP(move(w, m))
       :: else ->
          if
          :: row[m] == MINE(w) -> STEP(roll_back(w, m); OBSERVE(ROLLED_BACK, w, m))
          :: else
          fi;
          if
          :: n < LAST
#ifdef MOVE_WITHOUT_RECEIVING
          :: n == LAST -> STEP(move(w, m))
#else
          :: d_step { n == LAST && row[m] == FREE -> row[m] = MINE(w); OBSERVE(RECEIVED_AGAIN, w, m) }
             STEP(move(w, m))
          :: d_step { n == LAST && row[m] != FREE -> OBSERVE(NOT_RECEIVED, w, m) }
          :: d_step { n == LAST && FAULT } goto killed
#endif
          fi
       fi;
treated:
       STEP(in_flight[w] = NONE; m = NONE; n = 0; held = false)
    od;
    goto stop;
killed:
    atomic {
        OBSERVE(KILLED, w, 0);
        if
        :: in_flight[w] != NONE -> UP(failed[in_flight[w]]); crashes!in_flight[w]
        :: else
        fi
        in_flight[w] = NONE; n = 0; held = false; recent = false
    }
    d_step { roll_back(w, m); m = NONE }   /* later: the server notices that the client is gone */
    goto next;
stop:
    skip
}

proctype supervisor() {
    byte m, n;
end:
    do
    :: d_step { crashes?m }
       if
       :: d_step { count(SUPERVISOR, m, n) }
          if
          :: d_step { n == LAST && row[m] == FREE -> row[m] = MINE(SUPERVISOR); OBSERVE(RECEIVED_AGAIN, SUPERVISOR, m) }
             if
             :: d_step { move(SUPERVISOR, m) }
             :: d_step { FAULT; roll_back(SUPERVISOR, m) }
             fi
          :: d_step { n == LAST && row[m] != FREE -> OBSERVE(NOT_RECEIVED, SUPERVISOR, m) }
          :: n < LAST
          fi
       :: d_step { FAULT }   /* the supervisor is killed too: nobody counts */
       fi;
       d_step { m = 0; n = 0 }
    od
}

#define GOAL (ended[0] == 1 && ended[1] == 1)
AT_REST

init {
    atomic { RUN_AT_REST run worker(0); run worker(1); run supervisor(); }
}

CLAIM(every_message_ends, <> GOAL)
