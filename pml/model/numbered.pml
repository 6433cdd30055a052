/*
 * Numbered fragments from rank A (0) to rank B (1) over two rails that fail and come back: short
 * messages, which stand for all of them. What a rail ended with an error is replayed, and the
 * receiver drops duplicates and keeps early ones. rails.pml models how the two ends agree that a
 * rail is down or up. Here the two halves of a rail fail and drain each for itself, and come back
 * together.
 *
 * A step of a rank (a callback, an arrival, a decision) is one atomic block, because the
 * real code runs under the lock of the rank's progress engine. A BTL may take each of its
 * steps at any moment: a rail keeps no order.
 */

#ifndef MSGS
#define MSGS 3
#endif
#ifndef FAULTS
#define FAULTS 2
#endif
#ifndef OPS
#define OPS 2			/* operations under way on one half of a rail */
#endif

#define A 0
#define B 1

/* A half of a rail: one rank's endpoint. */
#define UP 0
#define FAILED 1
#define DRAINED 2
byte half[4];			/* of rail r at rank x: half[2*r+x] */
bit gone[2];			/* the rail will not come back */
byte faults = FAULTS;

/* Operations that a BTL has accepted and that may still have an effect. */
#define POSTED 0		/* the bytes are still in the user's buffer */
#define OUT 1			/* the bytes were read; they are on their way, or the peer's BTL has them */
#define HANDED 2		/* handed up to the BML, or in memory */

#define PENDING 0		/* not called back */
#define NIL 1
#define ERR 2

typedef Op {
	bit busy;
	unsigned n : 3;		/* sequence number */
	unsigned ver : 3;	/* content: number of the message, or 0 if the user has overwritten it */
	unsigned stage : 2;
	unsigned cb : 2
}
Op op[4 * OPS];			/* half e has op[e*OPS] to op[e*OPS+OPS-1] */

/* Numbered fragments. */
#define FREE 0
#define READY 1			/* can be posted */
#define BUSY 2			/* posted */
#define DONE 3			/* delivered: called back with nil */
#define REPLAY 4		/* REPLAY+r: in the replay queue until rail r is Drained */

typedef Num {
	unsigned at : 3;
	unsigned early : 2;	/* copies that the receiver keeps, because they are early */
	unsigned ver : 3	/* content of the early copy */
}
Num num[MSGS];
byte next;			/* next number of the sender */
byte sent;			/* sends that are complete */
byte expect;			/* number that the receiver expects */
byte received;
byte sbuf[2];			/* content of the send buffers */

byte i, j;			/* scratch, always zero between steps */

#define HAS_ROOM(e) (!op[(e)*OPS].busy || !op[(e)*OPS+OPS-1].busy)
#define CAN_POST(r, x) (half[2*(r)+(x)] == UP && HAS_ROOM(2*(r)+(x)))

inline post(rr, nn) {
	i = 2*rr*OPS;
	do
	:: !op[i].busy -> break
	:: else -> i++
	od;
	op[i].busy = true;
	op[i].n = nn;
	i = 0
}

inline clear(qq) {
	op[qq].busy = false;
	op[qq].n = 0;
	op[qq].ver = 0;
	op[qq].stage = 0;
	op[qq].cb = 0
}

/* The handler of fragments, which is called in order. */
inline match(nn, vv) {
	assert(nn == received);	/* each message once, and in order */
	assert(vv == nn + 1);	/* with the right bytes */
	received++
}

/* A fragment arrives. */
inline arrive(nn, vv) {
	if
#ifdef NO_DUPCHECK
	:: nn < expect -> match(nn, vv)
#else
	:: nn < expect
#endif
	:: nn > expect ->
#ifdef NO_EARLYCHECK
		num[nn].early++;
#else
		num[nn].early = 1;
#endif
		num[nn].ver = vv
	:: else ->
		match(expect, vv);
		expect++;
		do
		:: expect < MSGS && num[expect].early > 0 ->
			match(expect, num[expect].ver);
			if
			:: num[expect].early == 2 -> match(expect, num[expect].ver)
			:: else
			fi;
			num[expect].early = 0;
			num[expect].ver = 0;
			expect++
		:: else -> break
		od
	fi
}

/* An operation on rail rr is called back; ee: with an error. */
inline done(rr, nn, ee) {
	if
#ifndef NO_RESEND
	:: ee ->
#ifdef NO_DRAIN
		num[nn].at = READY
#else
		num[nn].at = REPLAY + rr
#endif
#endif
	:: else -> num[nn].at = DONE
	fi
}

#define O op[s]
#define MINE half[2*r+x]
#define THEIRS half[2*r+1-x]

/* One place for an operation on rank A's half of rail r. */
proctype place(byte r; byte k) {
	byte s = 2*r*OPS + k;
	byte x = A;
end:	do
	/* The bytes are read: at any time until Drained, even after a callback with an error. */
	:: d_step { O.busy && O.stage == POSTED && MINE != DRAINED ->
		O.ver = sbuf[O.n % 2];
		O.stage = OUT
	   }
	/* The operation arrives. */
	:: d_step { O.busy && O.stage == OUT && THEIRS != DRAINED ->
		O.stage = HANDED;
		arrive(O.n, O.ver);
		if
		:: O.cb != PENDING -> clear(s)
		:: else
		fi
	   }
	/* Callback with nil: the peer's BTL has the fragment. */
	:: d_step { O.busy && O.cb == PENDING && MINE != DRAINED &&
	     (O.stage == HANDED || O.stage == OUT && THEIRS != DRAINED) ->
		O.cb = NIL;
		done(r, O.n, 0);
		if
		:: O.stage == HANDED -> clear(s)
		:: else
		fi
	   }
	/* Callback with an error: the operation may have been delivered or not. */
	:: d_step { O.busy && O.cb == PENDING && MINE == FAILED ->
		O.cb = ERR;
		done(r, O.n, 1);
		if
		:: O.stage == HANDED || O.stage == OUT && THEIRS == DRAINED -> clear(s)
		:: else
		fi
	   }
	od
}

#define UNDER_WAY(s) (op[s].busy && op[s].cb == PENDING)
#define DELIVERABLE(s) (op[s].busy && op[s].stage == OUT && op[s].cb == NIL)
#define MY(k) ((2*r+x)*OPS+(k))
#define ITS(k) ((2*r+1-x)*OPS+(k))

/* Half x of rail r. */
proctype rail(byte r; byte x) {
end:	do
	:: atomic { MINE == UP && faults > 0 ->
		faults--;
		MINE = FAILED;
		if
		:: true
		:: gone[r] = true
		fi
	   }
	/* The other half is down. This half learns it from an operation that fails, from RAILDOWN, or
	   from the other half's next incarnation. */
	:: d_step { MINE == UP && THEIRS != UP -> MINE = FAILED }
	/* Every operation was called back, and what the peer thinks delivered was handed up. */
	:: d_step { MINE == FAILED && !UNDER_WAY(MY(0)) && !UNDER_WAY(MY(OPS-1)) &&
	     !DELIVERABLE(ITS(0)) && !DELIVERABLE(ITS(OPS-1)) ->
		MINE = DRAINED;
		i = 0;
		do
		:: i < OPS ->
			/* Nothing of this half is sent any more, and nothing reaches its memory. */
			if
			:: op[MY(i)].busy && (op[MY(i)].stage == POSTED || THEIRS == DRAINED) -> clear(MY(i))
			:: else
			fi;
			if
			:: op[ITS(i)].busy && op[ITS(i)].stage == OUT && op[ITS(i)].cb == ERR -> clear(ITS(i))
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: x == A && i < MSGS ->
			if
			:: num[i].at == REPLAY + r -> num[i].at = READY
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0
	   }
	/* The next incarnation. */
	:: d_step { x == A && half[2*r] == DRAINED && half[2*r+1] == DRAINED && !gone[r] ->
		half[2*r] = UP;
		half[2*r+1] = UP
	   }
	od
}

#define R1(k) (num[k].at == READY)
#define A_READY (R1(0) || R1(1) || R1(2))

inline lowest() {
	j = 0;
	do
	:: num[j].at == READY -> break
	:: else -> j++
	od
}

/* Fragments that are ready are posted on any rail that is up. */
proctype stream() {
end:	do
	:: d_step { A_READY && CAN_POST(0, A) -> lowest(); num[j].at = BUSY; post(0, j); j = 0 }
	/* By symmetry it is enough that the first fragment of the run goes by rail 0. */
	:: d_step { A_READY && (next > 1 || num[0].at == REPLAY || faults < FAULTS) && CAN_POST(1, A) -> lowest(); num[j].at = BUSY; post(1, j); j = 0 }
	od
}

/* The user sends all messages from two buffers. When a send is complete, the user overwrites its
   buffer and uses it again. Several sends may be under way. */
proctype sender() {
end:	do
	:: d_step { next < MSGS && sbuf[next % 2] == 0 ->
		sbuf[next % 2] = next + 1;
		num[next].at = READY;
		next++
	   }
	:: d_step { sent < next && num[sent].at == DONE ->
		sbuf[sent % 2] = 0;
		sent++
	   }
	od
}

#define ALIVE(r) (half[2*(r)] == UP && half[2*(r)+1] == UP)

init {
	atomic {
		run sender();
		run stream();
		run rail(0, A); run rail(0, B); run rail(1, A); run rail(1, B);
		for (i : 0 .. OPS-1) {
			run place(0, i); run place(1, i)
		}
		i = 0
	}
	/* When nothing can happen any more, all messages are received, or no rail is up. */
	timeout -> assert(!ALIVE(0) && !ALIVE(1) || sent == MSGS && received == MSGS)
}
