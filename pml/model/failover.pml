/*
 * Messages from rank A (0) to rank B (1) over two rails that fail and come back: numbered
 * fragments, pieces by FRAG, remote write and remote read, and the restart of a transfer.
 * rails.pml models how the two ends agree that a rail is down or up. Here the two halves of a
 * rail fail and drain each for itself, and this model assumes what rails.pml proves.
 *
 * A step of a rank (a callback, an arrival, a decision) is one atomic block, because the
 * real code runs under the lock of the rank's progress engine. A BTL may take each of its
 * steps at any moment: a rail keeps no order.
 */

/* How messages move: one of EAGER, COPY (FRAG), PUT, GET. */
#if !defined(EAGER) && !defined(COPY) && !defined(PUT) && !defined(GET)
#define COPY
#endif

#ifndef MSGS
#define MSGS 2
#endif
#ifndef FAULTS
#define FAULTS 1
#endif
#ifndef OPS
#define OPS 2			/* operations under way on one half of a rail */
#endif
#ifndef NUMS
#define NUMS 8			/* numbered fragments in each direction, in one run */
#endif
#define PIECES 2

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
#define NUM 1			/* a numbered fragment */
#define PIECE 2			/* a FRAG */
#define WRITE 3
#define READ 4

#define POSTED 0		/* the bytes are still in the user's buffer */
#define OUT 1			/* the bytes were read; they are on their way, or the peer's BTL has them */
#define HANDED 2		/* handed up to the BML, or in memory */

#define PENDING 0		/* not called back */
#define NIL 1
#define ERR 2

typedef Op {
	unsigned kind : 3;
	unsigned n : 4;		/* sequence number, or index of the piece */
	unsigned h : 4;		/* handle of the receive; of a READ: number of the message */
	unsigned ver : 3;	/* content: number of the message, or 0 if the user has overwritten it */
	unsigned stage : 2;
	unsigned cb : 2
}
Op op[4 * OPS];			/* half e has op[e*OPS] to op[e*OPS+OPS-1] */

/* Numbered fragments. Direction d is from rank d. */
#define MATCH 1
#define RNDV 2			/* or RGET */
#define ACK 3
#define PUT_MSG 4		/* PUT; the name PUT is a flag of this file */
#define FIN 5
#define RNDVRESTARTNOTIFY 6
#define RNDVRESTARTACK 7
#define RNDVRESTARTNACK 8

#define FREE 0
#define READY 1			/* can be posted */
#define BUSY 2			/* posted */
#define DONE 3			/* delivered: called back with nil */
#define REPLAY 4		/* REPLAY+r: in the replay queue until rail r is Drained */

typedef Num {
	unsigned kind : 4;
	unsigned h : 4;
	unsigned at : 3;
	unsigned early : 2;	/* copies that the receiver keeps, because they are early */
	unsigned ver : 3	/* content of the early copy */
}
Num num[2 * NUMS];
byte next[2];			/* next number of the sender */
byte expect[2];			/* number that the receiver expects */
byte undelivered[2];		/* fragments that were not called back with nil */

/* The sender. */
#define S_IDLE 0
#define S_RTS 1
#define S_STREAMING 2		/* or putting, if s_put */
#define S_RESTARTING 3
#define S_FINISHING 4		/* nothing is left to post, but the buffer is still in use */
byte s_state, s_h, s_next, s_out, sent;
bit s_put;			/* pieces go by remote write */
bit s_broken;			/* a piece has failed */
byte s_key;			/* message that the peer may read; 0: none */
byte sbuf[2];			/* content of the send buffers; long messages use the first */

/* The receiver. */
#define R_IDLE 0		/* the user owns the buffer */
#define R_STREAMING 2		/* pieces may arrive in the buffer */
#define R_GETTING 3
#define R_FINISHING 4
byte r_state, r_h, r_count, r_next, r_out, received, rts_received;
bit r_broken;
bit r_notified;			/* RNDVRESTARTNOTIFY has to be answered */
byte r_key;			/* handle by which the peer may write; 0: none */
byte handles;			/* newest handle; none is used twice */
byte rbuf[PIECES];		/* content of the receive buffer */

byte i, j, e0;			/* scratch, always zero between steps */

#define HAS_ROOM(e) (op[(e)*OPS].kind == 0 || op[(e)*OPS+OPS-1].kind == 0)
#define CAN_POST(r, x) (half[2*(r)+(x)] == UP && HAS_ROOM(2*(r)+(x)))

/* Rank x knows that both halves of rail r are Drained, or its half has not failed. */
#ifdef NO_FENCE
#define FENCED1(r, x) (half[2*(r)+(x)] != FAILED)
#elif defined(NO_DRAIN)
#define FENCED1(r, x) (half[2*(r)+(x)] == UP || half[2*(r)+1-(x)] == DRAINED)
#else
#define FENCED1(r, x) (half[2*(r)+(x)] == UP || half[2*(r)+(x)] == DRAINED && half[2*(r)+1-(x)] == DRAINED)
#endif
#define FENCED(x) (FENCED1(0, x) && FENCED1(1, x))

/* No failed half of rank x can still access a buffer, so that the user may have it. */
#ifdef NO_DRAIN
#define QUIET(x) true
#else
#define QUIET(x) (half[x] != FAILED && half[2+(x)] != FAILED)
#endif

inline post(rr, xx, kk, nn, hh, zz) {
	i = (2*rr+xx)*OPS;
	do
	:: op[i].kind == 0 -> break
	:: else -> i++
	od;
	op[i].kind = kk;
	op[i].n = nn;
	op[i].h = hh;
	op[i].stage = zz;
	i = 0
}

inline clear(qq) {
	op[qq].kind = 0;
	op[qq].n = 0;
	op[qq].h = 0;
	op[qq].ver = 0;
	op[qq].stage = 0;
	op[qq].cb = 0
}

inline send_numbered(xx, kk, hh) {
	assert(next[xx] < NUMS);
	num[xx*NUMS+next[xx]].kind = kk;
	num[xx*NUMS+next[xx]].h = hh;
	num[xx*NUMS+next[xx]].at = READY;
	next[xx]++;
	undelivered[xx]++
}

/* Handlers of numbered fragments, which are called in order. */

inline match(nn, vv) {
	assert(nn == received);	/* each message once, and in order */
	assert(vv == nn + 1);	/* with the right bytes */
	received++
}

inline on_rndv(mm) {
	rts_received++;
	assert(mm == rts_received)
}

inline on_fin_receiver(hh) {
	if
	:: r_state == R_STREAMING && hh == r_h ->
		r_key = 0;
		r_h = 0;
		r_state = R_FINISHING
	:: else
	fi
}

inline on_notify(hh) {
	if
	:: r_state == R_STREAMING && hh == r_h -> r_notified = true
	:: else -> send_numbered(B, RNDVRESTARTNACK, 0)
	fi
}

inline on_cts(hh, ww) {
	s_h = hh;
	s_put = ww;
	s_next = 0;
	s_broken = false;
	s_state = S_STREAMING
}

inline take(dd, vv) {
	if
	:: dd == A ->
		if
		:: num[expect[A]].kind == MATCH -> match(expect[A], vv)
		:: num[expect[A]].kind == RNDV -> on_rndv(num[expect[A]].h)
		:: num[expect[A]].kind == FIN -> on_fin_receiver(num[expect[A]].h)
		:: num[expect[A]].kind == RNDVRESTARTNOTIFY -> on_notify(num[expect[A]].h)
		fi
	:: else ->
		if
		:: num[NUMS+expect[B]].kind == ACK -> on_cts(num[NUMS+expect[B]].h, 0)
		:: num[NUMS+expect[B]].kind == PUT_MSG -> on_cts(num[NUMS+expect[B]].h, 1)
		:: num[NUMS+expect[B]].kind == RNDVRESTARTACK -> on_cts(num[NUMS+expect[B]].h, 0)
		:: num[NUMS+expect[B]].kind == RNDVRESTARTNACK -> s_state = S_FINISHING
		:: num[NUMS+expect[B]].kind == FIN -> s_state = S_FINISHING
		fi
	fi
}

/* A numbered fragment arrives. */
inline arrive(dd, nn, vv) {
	if
#ifdef NO_DUPCHECK
	:: nn < expect[dd] ->
		e0 = expect[dd];
		expect[dd] = nn;
		take(dd, vv);
		expect[dd] = e0;
		e0 = 0
#else
	:: nn < expect[dd]
#endif
	:: nn > expect[dd] ->
#ifdef NO_EARLYCHECK
		num[dd*NUMS+nn].early++;
#else
		num[dd*NUMS+nn].early = 1;
#endif
		num[dd*NUMS+nn].ver = vv
	:: else ->
		take(dd, vv);
		expect[dd]++;
		do
		:: expect[dd] < NUMS && num[dd*NUMS+expect[dd]].early > 0 ->
			take(dd, num[dd*NUMS+expect[dd]].ver);
			if
			:: num[dd*NUMS+expect[dd]].early == 2 -> take(dd, num[dd*NUMS+expect[dd]].ver)
			:: else
			fi;
			num[dd*NUMS+expect[dd]].early = 0;
			num[dd*NUMS+expect[dd]].ver = 0;
			expect[dd]++
		:: else -> break
		od
	fi
}

/* A FRAG arrives. It is dropped unless its handle names the receive. */
inline on_frag(pp, hh, vv) {
	if
	:: r_state == R_STREAMING && hh == r_h ->
		rbuf[pp] = vv;
		r_count++;
		if
		:: r_count == PIECES && !r_notified ->
			r_key = 0;
			r_h = 0;
			r_count = 0;
			r_state = R_FINISHING
		:: else
		fi
	:: else
	fi
}

/* A NIC writes, or reads, without the receiver's software. */
inline land(pp, vv) {
	assert(r_state != R_IDLE);	/* no access to a buffer that the user owns */
	rbuf[pp] = vv
}

/* An operation of rank xx on rail rr is called back; ee: with an error. */
inline done(xx, rr, kk, nn, ee) {
	if
	:: kk == NUM && !ee ->
		num[xx*NUMS+nn].at = DONE;
		undelivered[xx]--
	:: kk == NUM && ee ->
#ifdef NO_RESEND
		num[xx*NUMS+nn].at = DONE;
		undelivered[xx]--
#elif defined(NO_DRAIN)
		num[xx*NUMS+nn].at = READY
#else
		num[xx*NUMS+nn].at = REPLAY + rr
#endif
	:: kk == READ ->
		r_out--;
		if
		:: ee -> r_broken = true
		:: else
		fi
	:: else ->
		s_out--;
		if
		:: ee -> s_broken = true
		:: else
		fi
	fi
}

#ifdef NO_REVOKE
#define MAY_WRITE(hh) true
#else
#define MAY_WRITE(hh) (r_key == hh)
#endif

#define O op[s]
#define MINE half[2*r+x]
#define THEIRS half[2*r+1-x]

/* One place for an operation on half x of rail r. */
proctype place(byte r; byte x; byte k) {
	byte s = (2*r+x)*OPS + k;
end:	do
	/* The bytes are read: at any time until Drained, even after a callback with an error. */
	:: d_step { O.kind != 0 && O.kind != READ && O.stage == POSTED && MINE != DRAINED ->
#ifdef EAGER
		O.ver = sbuf[O.n % 2];
#else
		O.ver = sbuf[0];
#endif
		O.stage = OUT
	   }
	:: d_step { O.kind == READ && O.stage == POSTED && THEIRS != DRAINED && s_key == O.h ->
		O.ver = sbuf[0];
		O.stage = OUT
	   }
	/* The operation arrives. */
	:: d_step { O.kind != 0 && O.stage == OUT &&
	     (O.kind == READ && MINE != DRAINED || O.kind == WRITE && THEIRS != DRAINED && MAY_WRITE(O.h) ||
	      O.kind <= PIECE && THEIRS != DRAINED) ->
		O.stage = HANDED;
		if
		:: O.kind == NUM -> arrive(x, O.n, O.ver)
		:: O.kind == PIECE -> on_frag(O.n, O.h, O.ver)
		:: else -> land(O.n, O.ver)
		fi;
		if
		:: O.cb != PENDING -> clear(s)
		:: else
		fi
	   }
	/* Callback with nil: the peer's BTL has the fragment, or the bytes are in memory. */
	:: d_step { O.kind != 0 && O.cb == PENDING && MINE != DRAINED &&
	     (O.stage == HANDED || O.stage == OUT && O.kind <= PIECE && THEIRS != DRAINED) ->
		O.cb = NIL;
		done(x, r, O.kind, O.n, 0);
		if
		:: O.stage == HANDED -> clear(s)
		:: else
		fi
	   }
	/* Callback with an error: the operation may have been delivered or not. */
	:: d_step { O.kind != 0 && O.cb == PENDING && MINE == FAILED ->
		O.cb = ERR;
		done(x, r, O.kind, O.n, 1);
		if
		:: O.stage == HANDED || O.stage == OUT && THEIRS == DRAINED && O.kind != READ -> clear(s)
		:: else
		fi
	   }
	od
}

#define UNDER_WAY(s) (op[s].kind != 0 && op[s].cb == PENDING)
#define DELIVERABLE(s) (op[s].kind != 0 && op[s].stage == OUT && op[s].cb == NIL)
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
			:: op[MY(i)].kind != 0 && (op[MY(i)].stage == POSTED || op[MY(i)].kind == READ || THEIRS == DRAINED) ->
				clear(MY(i))
			:: else
			fi;
			if
			:: op[ITS(i)].kind != 0 && op[ITS(i)].kind != READ && op[ITS(i)].stage == OUT && op[ITS(i)].cb == ERR ->
				clear(ITS(i))
			:: else
			fi;
			i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < NUMS ->
			if
			:: num[x*NUMS+i].at == REPLAY + r -> num[x*NUMS+i].at = READY
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

#define R1(x, k) num[(x)*NUMS+(k)].at == READY
#define ready(x) (R1(x,0) || R1(x,1) || R1(x,2) || R1(x,3) || R1(x,4) || R1(x,5) || R1(x,6) || R1(x,7))

inline lowest(xx) {
	j = 0;
	do
	:: num[xx*NUMS+j].at == READY -> break
	:: else -> j++
	od
}

#ifdef EAGER
#define STAGE POSTED
#else
#define STAGE OUT		/* it has no bytes of a user's buffer */
#endif

/* Rank x posts numbered fragments that are ready, on any rail that is up. */
proctype stream(byte x) {
end:	do
	:: d_step { ready(x) && CAN_POST(0, x) -> lowest(x); num[x*NUMS+j].at = BUSY; post(0, x, NUM, j, 0, STAGE); j = 0 }
	/* By symmetry it is enough that the first fragment of the run goes by rail 0. */
	:: d_step { ready(x) && (next[A] > 1 || x == B || num[0].at == REPLAY || faults < FAULTS) && CAN_POST(1, x) -> lowest(x); num[x*NUMS+j].at = BUSY; post(1, x, NUM, j, 0, STAGE); j = 0 }
	od
}

#ifdef EAGER
/* The user sends all messages from two buffers. When a send is complete, the user overwrites its
   buffer and uses it again. Several sends may be under way. */
#define COMPLETE(n) (num[n].at == DONE && QUIET(A))
proctype sender() {
end:	do
	:: d_step { next[A] < MSGS && sbuf[next[A] % 2] == 0 ->
		sbuf[next[A] % 2] = next[A] + 1;
		send_numbered(A, MATCH, 0)
	   }
	:: d_step { sent < next[A] && COMPLETE(sent) ->
		sbuf[sent % 2] = 0;
		sent++
	   }
	od
}
proctype receiver() { true }
#else

proctype sender() {
end:	do
	/* The user sends from the one buffer. */
	:: d_step { s_state == S_IDLE && sent < MSGS ->
		sbuf[0] = sent + 1;
#ifdef GET
		s_key = sent + 1;
#endif
		send_numbered(A, RNDV, sent + 1);
		s_state = S_RTS
	   }
	/* A piece is posted on either rail. */
	:: d_step { s_state == S_STREAMING && !s_broken && s_next < PIECES && CAN_POST(0, A) ->
		post(0, A, (s_put -> WRITE : PIECE), s_next, s_h, POSTED);
		s_next++;
		s_out++
	   }
	:: d_step { s_state == S_STREAMING && !s_broken && s_next < PIECES && CAN_POST(1, A) ->
		post(1, A, (s_put -> WRITE : PIECE), s_next, s_h, POSTED);
		s_next++;
		s_out++
	   }
	/* All pieces are delivered. */
	:: d_step { s_state == S_STREAMING && !s_broken && s_next == PIECES && s_out == 0 ->
		s_next = 0;
		s_state = S_FINISHING;
		if
		:: s_put -> send_numbered(A, FIN, s_h)
		:: else
		fi;
		s_h = 0;
		s_put = 0
	   }
	/* A piece has failed: it may be delivered or not. */
	:: d_step { s_state == S_STREAMING && s_broken && s_out == 0 && FENCED(A) ->
		s_next = 0;
		s_broken = false;
		s_put = 0;
		s_state = S_RESTARTING;
		send_numbered(A, RNDVRESTARTNOTIFY, s_h);
		s_h = 0
	   }
	/* The send is complete, and the user overwrites the buffer. */
	:: d_step { s_state == S_FINISHING && undelivered[A] == 0 && QUIET(A) ->
		s_state = S_IDLE;
		s_key = 0;
		sbuf[0] = 0;
		sent++
	   }
	od
}

inline match_rndv() {
	handles++;
	r_h = handles;
	r_count = 0;
#ifdef GET
	r_state = R_GETTING
#else
	r_state = R_STREAMING;
#ifdef PUT
	r_key = r_h;
	send_numbered(B, PUT_MSG, r_h)
#else
	send_numbered(B, ACK, r_h)
#endif
#endif
}

proctype receiver() {
end:	do
	/* The user receives into the one buffer, and a RNDV matches. */
	:: d_step { r_state == R_IDLE && rts_received > received -> match_rndv() }
	/* The sender asks for a restart. */
	:: d_step { r_notified && undelivered[B] == 0 ->
		r_notified = false;
#ifndef NO_ATTEMPT
		handles++;
		r_h = handles;
#endif
		r_key = 0;
		r_count = 0;
		send_numbered(B, RNDVRESTARTACK, r_h)
	   }
#ifdef GET
	:: d_step { r_state == R_GETTING && !r_broken && r_next < PIECES && CAN_POST(0, B) ->
		post(0, B, READ, r_next, received + 1, POSTED);
		r_next++;
		r_out++
	   }
	:: d_step { r_state == R_GETTING && !r_broken && r_next < PIECES && CAN_POST(1, B) ->
		post(1, B, READ, r_next, received + 1, POSTED);
		r_next++;
		r_out++
	   }
	:: d_step { r_state == R_GETTING && !r_broken && r_next == PIECES && r_out == 0 ->
		r_next = 0;
		r_h = 0;
		r_state = R_FINISHING;
		send_numbered(B, FIN, 0)
	   }
	:: atomic { r_state == R_GETTING && r_broken && r_out == 0 && FENCED(B) ->
		r_next = 0;
		r_broken = false;
		if
		:: true			/* reads the whole message again */
		:: r_state = R_STREAMING;	/* no rail that is up can read */
		   send_numbered(B, ACK, r_h)
		fi
	   }
#endif
	:: d_step { r_state == R_FINISHING && undelivered[B] == 0 && QUIET(B) ->
		received++;
		assert(rbuf[0] == received && rbuf[1] == received);	/* the right bytes */
		r_state = R_IDLE;
		rbuf[0] = 0;
		rbuf[1] = 0
	   }
	od
}
#endif

#define ALIVE(r) (half[2*(r)] == UP && half[2*(r)+1] == UP)

init {
	atomic {
		run sender();
		run receiver();
		run stream(A);
		run stream(B);
		run rail(0, A); run rail(0, B); run rail(1, A); run rail(1, B);
		for (i : 0 .. OPS-1) {
			run place(0, A, i); run place(0, B, i); run place(1, A, i); run place(1, B, i)
		}
		i = 0
	}
	/* When nothing can happen any more, all messages are received, or no rail is up. */
	timeout -> assert(!ALIVE(0) && !ALIVE(1) || sent == MSGS && received == MSGS)
}
