/*
A process with several messages dies: workers/supervision/slots.py, pool.py and quarantine.py. Message 0 kills the process that
handles it, each time. Two processes have two slots each; a third one is alone with the suspects. A process may also be killed by
somebody else.

Broken variants: COUNTED_TOGETHER, NO_QUARANTINE, TRIED_TOGETHER, FORGOTTEN_WHEN_TAKEN.
*/
#include "common.pml"

#define MESSAGES 3
#define ATTEMPTS 2   /* the attempt after which a message moves to the error queue */

/* where a message is: in the queue, handled by process p, or at its end */
#define QUEUE 9
#define DONE 10
#define ERROR_QUEUE 11

byte place[MESSAGES] = QUEUE;
byte attempts[MESSAGES];
bool suspect[MESSAGES];
bool lost[MESSAGES];       /* was in flight in a process that died, and the supervisor has not looked yet */
byte by[MESSAGES];         /* in which one */
byte together[3];          /* how many were in flight in a process when it died */
bool alive[3];
bool leaving[3];           /* receives nothing more */

#define END(m) (place[m] == DONE || place[m] == ERROR_QUEUE)
#define GOAL (END(0) && END(1) && END(2))
#define IN(p) ((place[0] == (p)) + (place[1] == (p)) + (place[2] == (p)))
#define SUSPECTS (suspect[0] || suspect[1] || suspect[2])
#define LOST (lost[0] || lost[1] || lost[2])

/* another process may receive a message before the supervisor has looked, but not for ever: that is a fault too */
#define RECEIVES(p, m) alive[p] && !leaving[p] && IN(p) < 2 && place[m] == QUEUE && (!lost[m] || faults < FAULTS)

/* the server rolls back: all messages of the process are in the queue again */
inline die(p) {
    alive[p] = false;
    together[p] = IN(p);
    m = 0;
    do
    :: m < MESSAGES -> if :: place[m] == p -> place[m] = QUEUE; lost[m] = true; by[m] = p :: else fi; m++
    :: else -> break
    od;
    m = 0
}

/* record_failure and the move after the last attempt: one transaction, if nobody else has the message */
inline count(x) {
    if
    :: place[x] == QUEUE ->
       attempts[x]++;
       if :: attempts[x] >= ATTEMPTS -> place[x] = ERROR_QUEUE; suspect[x] = false :: else fi
    :: else
    fi
}

proctype process(byte p) {
    byte m;
    do
    :: GOAL -> break
    :: d_step { RECEIVES(p, 0) -> if :: lost[0] -> faults++ :: else fi; place[0] = p }
    :: d_step { RECEIVES(p, 1) -> if :: lost[1] -> faults++ :: else fi; place[1] = p }
    :: d_step { RECEIVES(p, 2) -> if :: lost[2] -> faults++ :: else fi; place[2] = p }
    :: d_step { alive[p] && place[0] == p -> die(p) }
    :: d_step { alive[p] && place[1] == p -> place[1] = DONE; assert(faults || !attempts[1]) }
    :: d_step { alive[p] && place[2] == p -> place[2] = DONE; assert(faults || !attempts[2]) }
    :: d_step { alive[p] && IN(p) && faults < FAULTS -> faults++; die(p) }
    od
}

/* the process that is alone with the suspects; one that has left the queue for good is none any more */
#ifdef FORGOTTEN_WHEN_TAKEN
#define NO_SUSPECT(m) (place[m] != QUEUE && place[m] != 2)
#else
#define NO_SUSPECT(m) END(m)
#endif

proctype alone() {
    byte m;
    do
    :: GOAL -> break
    :: d_step { alive[2] && IN(2) == 0 && suspect[0] && place[0] == QUEUE && !lost[0] -> place[0] = 2 }
    :: d_step { alive[2] && IN(2) == 0 && suspect[1] && place[1] == QUEUE && !lost[1] -> place[1] = 2 }
    :: d_step { alive[2] && IN(2) == 0 && suspect[2] && place[2] == QUEUE && !lost[2] -> place[2] = 2 }
#ifdef TRIED_TOGETHER
    :: d_step { alive[2] && IN(2) == 1 && place[0] == QUEUE && !lost[0] -> place[0] = 2 }
    :: d_step { alive[2] && IN(2) == 1 && place[1] == QUEUE && !lost[1] -> place[1] = 2 }
#endif
    :: d_step { alive[2] && suspect[0] && NO_SUSPECT(0) -> suspect[0] = false }
    :: d_step { alive[2] && suspect[1] && NO_SUSPECT(1) -> suspect[1] = false }
    :: d_step { alive[2] && suspect[2] && NO_SUSPECT(2) -> suspect[2] = false }
    :: d_step { alive[2] && place[0] == 2 -> die(2) }
    :: d_step { alive[2] && place[1] == 2 -> place[1] = DONE; suspect[1] = false; assert(faults || !attempts[1]) }
    :: d_step { alive[2] && place[2] == 2 -> place[2] = DONE; suspect[2] = false; assert(faults || !attempts[2]) }
    od
}

#ifdef COUNTED_TOGETHER
#define ALONE(m) true
#else
#define ALONE(m) (together[by[m]] == 1)
#endif

inline look(x) {
    lost[x] = false;
    if
    :: ALONE(x) -> count(x)
#ifndef NO_QUARANTINE
    :: else -> suspect[x] = true
#else
    :: else
#endif
    fi
}

proctype supervisor() {
    do
    :: GOAL -> break
    :: d_step { lost[0] -> look(0) }
    :: d_step { lost[1] -> look(1) }
    :: d_step { lost[2] -> look(2) }
    :: d_step { !LOST && SUSPECTS && !(leaving[0] && leaving[1]) -> leaving[0] = true; leaving[1] = true }
    :: d_step { !LOST && SUSPECTS && !alive[2] -> alive[2] = true }
    :: d_step { !SUSPECTS && !LOST && (!alive[0] || leaving[0]) && IN(0) == 0 -> alive[0] = true; leaving[0] = false }
    :: d_step { !SUSPECTS && !LOST && (!alive[1] || leaving[1]) && IN(1) == 0 -> alive[1] = true; leaving[1] = false }
    od
}

AT_REST

init {
    atomic { RUN_AT_REST run process(0); run process(1); run alone(); run supervisor() }
}

CLAIM(each_message_ends, <> GOAL)
