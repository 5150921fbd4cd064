/*
The ticks of a schedule: transport/schedules.py, watch_schedules and advance_schedule. Two supervisors send the ticks 1 to 3 of a
schedule with `missed: all`. The server's clock moves on, and may go back. Either is killed at any step.

Broken variants: BLIND_ADVANCE, SENT_AFTER_COMMIT, CLOCK_DECIDES.
*/
#include "common.pml"

#define TICKS 3
#define NOBODY 0
#define MINE(w) ((w) + 1)

byte now;               /* the last tick that is due by the server's clock */
byte ticked_to;         /* the row: the last tick that is done, as committed */
byte owner;             /* whose open transaction has locked the row */
byte sent[TICKS + 1];   /* messages of each tick, as committed */

#define GOAL (sent[1] == 1 && sent[2] == 1 && sent[3] == 1)

#ifdef CLOCK_DECIDES
#define IS_DUE (now > 0 && now != ticked_to)
#define DUE now
#else
#define IS_DUE (now > ticked_to)
#define DUE (ticked_to + 1)
#endif

#ifdef BLIND_ADVANCE
#define UNCHANGED true
#else
#define UNCHANGED (ticked_to == seen)
#endif

inline send(t) {
    sent[t]++;
    assert(sent[t] == 1)
}

proctype supervisor(byte w) {
    byte seen, tick;
next:
    do
    :: GOAL -> break
    :: d_step { !GOAL && IS_DUE -> seen = ticked_to; tick = DUE }   /* watch_schedules */
       if
       :: d_step { FAULT } goto killed
       :: d_step { owner == NOBODY && UNCHANGED && tick <= now -> owner = MINE(w) }   /* advance_schedule */
#ifdef SENT_AFTER_COMMIT
          STEP(ticked_to = tick; owner = NOBODY)
          STEP(send(tick))
#else
          STEP(send(tick); ticked_to = tick; owner = NOBODY)
#endif
       :: owner != NOBODY || !UNCHANGED || tick > now   /* it is not moved on */
       fi
    od;
    goto stop;
killed:   /* the server notices later */
    atomic { if :: owner == MINE(w) -> owner = NOBODY :: else fi }
    goto next;
stop:
    skip
}

proctype clock() {
    do
    :: now < TICKS -> now++
    :: now == TICKS -> break
    :: d_step { FAULT; if :: now > 0 -> now-- :: else fi }
    od
}

AT_REST

init {
    atomic { RUN_AT_REST run supervisor(0); run supervisor(1); run clock() }
}

CLAIM(every_tick_is_sent, <> GOAL)
