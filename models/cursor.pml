/*
The receive cursor: workers/receive_cursor.py with Worker._receive, receive_messages and p_after_row_version. Two workers, and
senders that never stop: every receive may find another message. One message got its row version early and commits late, or
never, which leaves a gap. It must not wait for ever behind the others.

Row versions are START, LATE (the message that commits late) and HIGHER, which stands for all that are higher. Where the code
compares two row versions of which both are HIGHER, the model takes both ways. `due` says that a full scan is due. The clock
makes it true again and again, at any time. Broken variants: NO_PERIODIC_SCAN, SCAN_ABOVE_MARK.
*/
#include "common.pml"

#define START 0
#define LATE 1
#define HIGHER 2

/* the message that commits late */
#define UNCOMMITTED 0
#define FREE 1
#define GONE 2
#define MINE(w) (3 + (w))

byte late;
byte mark;    /* SharedHighWaterMark.row_version, read and written without a lock */
bool due;
#define MAX(a, b) ((a) > (b) -> (a) : (b))
#define GOAL (late == GONE)

proctype worker(byte w) {
    byte own, behind;   /* ReceiveCursor.row_version and behind_until */
    byte start, others, first, end;
    bool scans;
next:
    do
    :: GOAL -> break
    :: else ->
#ifdef NO_PERIODIC_SCAN
       d_step { start = (own < behind -> own : MAX(own, mark)); scans = (start == START) }
#else
       if   /* ReceiveCursor.start */
       :: d_step { due -> due = false; scans = true; start = START }
       :: d_step { !due -> start = (own < behind -> own : MAX(own, mark)); scans = (start == START) }
       fi;
#endif
reserve:
       STEP(others = mark)
       STEP(if :: (start == START && others != START) || (start != START && start >= others) -> mark = HIGHER :: else fi; others = 0)
#ifdef SCAN_ABOVE_MARK
       STEP(start = (scans -> mark : start))
#endif
       if   /* receive_messages */
       :: d_step { late == FREE && start < LATE -> late = MINE(w); first = LATE; end = LATE }
       :: d_step { late == FREE && start < LATE -> late = MINE(w); first = LATE; end = HIGHER }
       :: d_step { !(late == FREE && start < LATE) -> first = HIGHER; end = HIGHER }
       :: !(late == FREE && start < LATE)   /* nothing */
       :: d_step { FAULT } goto killed
       fi;
       if
       :: scans -> STEP(due = false; scans = false)   /* full_scan_ended */
       :: else
       fi;
       if
       :: first == 0 ->
          if
          :: d_step { start != START && due -> due = false; scans = true; start = START } goto reserve   /* needs_full_scan */
          :: start == START || !due -> STEP(mark = START; behind = START)   /* found_nothing */
          fi
       :: first != 0 ->
          if
          :: d_step { late = (late == MINE(w) -> GONE : late); behind = (first < own -> MAX(behind, own) : behind); own = end }
             if   /* removed: fewer than requested, or beyond the reservation */
             :: mark < HIGHER -> STEP(mark = end)
             :: skip
             :: STEP(mark = end)
             fi
          :: d_step { first == own -> late = (late == MINE(w) -> GONE : late); behind = MAX(behind, own); own = end }
          :: d_step { FAULT; late = (late == MINE(w) -> FREE : late); behind = mark }   /* rolled_back */
          :: d_step { FAULT } goto killed
          fi
       fi;
       d_step { start = 0; first = 0; end = 0 }
    od;
    goto stop;
killed:   /* the server notices; another worker has a new cursor and the shared mark */
    atomic {
        late = (late == MINE(w) -> FREE : late);
        own = 0; behind = 0; start = 0; first = 0; end = 0; scans = false; others = 0
    }
    goto next;
stop:
    skip
}

proctype clock() {
end:
    do
    :: !due && !GOAL -> due = true
    od
}

proctype sender() {
    if
    :: late = FREE
    :: late = GONE   /* the sender rolls back */
    fi
}

AT_REST

init {
    atomic { RUN_AT_REST run worker(0); run worker(1); run clock(); run sender() }
}

CLAIM(no_message_waits_for_ever, <> GOAL)
