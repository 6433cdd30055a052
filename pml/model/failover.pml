/*
 * Transfers of messages from rank A (0) to rank B (1) over two rails that fail and come
 * back: the numbered stream, pieces by FRAG, remote write and remote read, and the restart.
 * How two ends agree that a rail is down or up is in rails.pml; here a rail's two halves
 * fail and drain each for itself, and what rails.pml proves of the outcome is taken.
 *
 * A step of a rank (a callback, an arrival, a decision) is one atomic block, as it is in
 * the PML, which runs under the lock of the rank's progress engine. A BTL may do what it
 * still can at any moment: there is no order on a rail but what the PML makes.
 */

/* What is to be moved: one of EAGER, FRAG, PUT, GET. */
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
#define OPS 2			/* operations that one half of a rail takes at a time */
#endif
#ifndef NUMS
#define NUMS 8			/* numbered fragments a direction, in one run */
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

/* Operations that a BTL has accepted, or that may still have an effect. */
#define NUM 1			/* a numbered fragment */
#define PIECE 2			/* a FRAG */
#define WRITE 3
#define READ 4

#define POSTED 0		/* bytes are still in the user's buffer */
#define OUT 1			/* bytes were read; on the way, or the peer's BTL has them */
#define HANDED 2		/* handed up to the PML, or in memory */

#define PENDING 0		/* not called back */
#define NIL 1
#define ERR 2

typedef Op {
	unsigned kind : 3;
	unsigned n : 4;		/* which number, or which piece */
	unsigned h : 4;		/* handle of the receive; READ: the message */
	unsigned ver : 3;	/* whose bytes: the number of a message, 0 for the user's scribble */
	unsigned stage : 2;
	unsigned cb : 2
}
Op op[4 * OPS];			/* those of half e: op[e*OPS] … op[e*OPS+OPS-1] */

/* The numbered stream; direction d is from rank d. */
#define MATCH 1
#define RNDV 2			/* RGET too, if the receiver reads */
#define ACK 3
#define INVITE 4		/* the message PUT */
#define FIN 5
#define RNDVRESTARTNOTIFY 6
#define RNDVRESTARTACK 7
#define RNDVRESTARTNACK 8

#define FREE 0
#define READY 1			/* to be posted */
#define BUSY 2			/* posted */
#define DONE 3			/* called back with nil */
#define LIMBO 4			/* LIMBO+r: came back with an error; waits for Drained of rail r */

typedef Num {
	unsigned kind : 4;
	unsigned h : 4;
	unsigned at : 3;
	unsigned parked : 2;	/* at the receiver: copies that came before their turn */
	unsigned ver : 3	/* of the parked copy */
}
Num num[2 * NUMS];
byte next[2];			/* number of the next fragment */
byte expect[2];			/* number that the receiver will take next */
byte unanswered[2];			/* numbered operations that were not called back with nil */

/* The sender. */
#define S_IDLE 0
#define S_ANNOUNCED 1
#define S_PUSHING 2
#define S_RESTARTING 3
#define S_FINISHING 4		/* all is said; the buffer is not the user's yet */
byte s_state, s_h, s_next, s_out, sent;
bit s_put;			/* by remote writes */
bit s_broken;
byte s_key;			/* message that peers may read; 0: none */
byte sbuf[2];			/* what the send buffers hold; long messages use the first */

/* The receiver. */
#define R_USER 0		/* the buffer is the user's */
#define R_ACTIVE 2		/* what comes is put into it */
#define R_READING 3
#define R_FINISHING 4
byte r_state, r_h, r_count, r_next, r_out, received, announced;
bit r_broken;
bit r_notified;			/* a restart is to be answered */
byte r_key;			/* handle under which it may be written; 0: none */
byte handles;			/* given so far; none is given twice */
byte rbuf[PIECES];		/* whose bytes lie in the receive buffer */

byte i, j, e0;			/* scratch, always zero between steps */

#define HAS_ROOM(e) (op[(e)*OPS].kind == 0 || op[(e)*OPS+OPS-1].kind == 0)
#define CAN_POST(r, x) (half[2*(r)+(x)] == UP && HAS_ROOM(2*(r)+(x)))

/* Our half is Drained, and the peer's is known to be. */
#ifdef NO_FENCE
#define FENCED1(r, x) (half[2*(r)+(x)] != FAILED)
#elif defined(NO_DRAIN)
#define FENCED1(r, x) (half[2*(r)+(x)] == UP || half[2*(r)+1-(x)] == DRAINED)
#else
#define FENCED1(r, x) (half[2*(r)+(x)] == UP || half[2*(r)+(x)] == DRAINED && half[2*(r)+1-(x)] == DRAINED)
#endif
#define FENCED(x) (FENCED1(0, x) && FENCED1(1, x))

/* A buffer is given back only when no half of ours may still touch it. */
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

inline say(xx, kk, hh) {
	assert(next[xx] < NUMS);
	num[xx*NUMS+next[xx]].kind = kk;
	num[xx*NUMS+next[xx]].h = hh;
	num[xx*NUMS+next[xx]].at = READY;
	next[xx]++;
	unanswered[xx]++
}

/* What the receiver of a numbered fragment makes of it, once it is its turn. */

inline match(nn, vv) {
	assert(nn == received);	/* none lost, none twice, in order */
	assert(vv == nn + 1);	/* and the right bytes */
	received++
}

inline on_rndv(mm) {
	announced++;
	assert(mm == announced)
}

inline on_fin_receiver(hh) {
	if
	:: r_state == R_ACTIVE && hh == r_h ->
		r_key = 0;
		r_h = 0;
		r_state = R_FINISHING
	:: else
	fi
}

inline on_notify(hh) {
	if
	:: r_state == R_ACTIVE && hh == r_h -> r_notified = true
	:: else -> say(B, RNDVRESTARTNACK, 0)
	fi
}

inline on_ack(hh, ww) {
	s_h = hh;
	s_put = ww;
	s_next = 0;
	s_broken = false;
	s_state = S_PUSHING
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
		:: num[NUMS+expect[B]].kind == ACK -> on_ack(num[NUMS+expect[B]].h, 0)
		:: num[NUMS+expect[B]].kind == INVITE -> on_ack(num[NUMS+expect[B]].h, 1)
		:: num[NUMS+expect[B]].kind == RNDVRESTARTACK -> on_ack(num[NUMS+expect[B]].h, 0)
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
#ifdef NO_PARKCHECK
		num[dd*NUMS+nn].parked++;
#else
		num[dd*NUMS+nn].parked = 1;
#endif
		num[dd*NUMS+nn].ver = vv
	:: else ->
		take(dd, vv);
		expect[dd]++;
		do
		:: expect[dd] < NUMS && num[dd*NUMS+expect[dd]].parked > 0 ->
			take(dd, num[dd*NUMS+expect[dd]].ver);
			if
			:: num[dd*NUMS+expect[dd]].parked == 2 -> take(dd, num[dd*NUMS+expect[dd]].ver)
			:: else
			fi;
			num[dd*NUMS+expect[dd]].parked = 0;
			num[dd*NUMS+expect[dd]].ver = 0;
			expect[dd]++
		:: else -> break
		od
	fi
}

/* A FRAG arrives: it counts for the receive that its handle names, if there is one. */
inline on_frag(pp, hh, vv) {
	if
	:: r_state == R_ACTIVE && hh == r_h ->
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

/* A NIC writes: nobody asks the receiver's PML. */
inline land(pp, vv) {
	assert(r_state != R_USER);	/* no write after the buffer was given back */
	rbuf[pp] = vv
}

/* An operation is called back. x: whose it is; r: the rail that had it. */
inline done(xx, rr, kk, nn, ee) {
	if
	:: kk == NUM && !ee ->
		num[xx*NUMS+nn].at = DONE;
		unanswered[xx]--
	:: kk == NUM && ee ->
#ifdef NO_RESEND
		num[xx*NUMS+nn].at = DONE;
		unanswered[xx]--
#elif defined(NO_DRAIN)
		num[xx*NUMS+nn].at = READY
#else
		num[xx*NUMS+nn].at = LIMBO + rr
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

/* One place in which half x of rail r keeps an operation. */
proctype place(byte r; byte x; byte k) {
	byte s = (2*r+x)*OPS + k;
end:	do
	/* The bytes are read: at any time until Drained, also after the operation was called back with an error. */
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
	/* They arrive. */
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
	/* Called back with nil: the peer's BTL has it, or it is in memory. */
	:: d_step { O.kind != 0 && O.cb == PENDING && MINE != DRAINED &&
	     (O.stage == HANDED || O.stage == OUT && O.kind <= PIECE && THEIRS != DRAINED) ->
		O.cb = NIL;
		done(x, r, O.kind, O.n, 0);
		if
		:: O.stage == HANDED -> clear(s)
		:: else
		fi
	   }
	/* Called back with an error, whatever has become of it. */
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

#define WAITS(s) (op[s].kind != 0 && op[s].cb == PENDING)
#define OWES(s) (op[s].kind != 0 && op[s].stage == OUT && op[s].cb == NIL)
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
	/* The other end is down. This one learns of it by an operation that fails, by RAILDOWN, or by
	   the other's next incarnation. */
	:: d_step { MINE == UP && THEIRS != UP -> MINE = FAILED }
	/* All was called back, and what the peer was told that we have was handed up. */
	:: d_step { MINE == FAILED && !WAITS(MY(0)) && !WAITS(MY(OPS-1)) &&
	     !OWES(ITS(0)) && !OWES(ITS(OPS-1)) ->
		MINE = DRAINED;
		i = 0;
		do
		:: i < OPS ->
			/* Nothing of ours leaves any more, and nothing reaches our memory. */
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
			:: num[x*NUMS+i].at == LIMBO + r -> num[x*NUMS+i].at = READY
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
#define STAGE OUT		/* no bytes of a user are in it */
#endif

/* Posts what is to be posted of the numbered stream, on any rail that is up. */
proctype stream(byte x) {
end:	do
	:: d_step { ready(x) && CAN_POST(0, x) -> lowest(x); num[x*NUMS+j].at = BUSY; post(0, x, NUM, j, 0, STAGE); j = 0 }
	/* The rails are alike: that the first fragment of all goes by rail 0 leaves nothing out. */
	:: d_step { ready(x) && (next[A] > 1 || x == B || num[0].at == LIMBO || faults < FAULTS) && CAN_POST(1, x) -> lowest(x); num[x*NUMS+j].at = BUSY; post(1, x, NUM, j, 0, STAGE); j = 0 }
	od
}

#ifdef EAGER
/* The user sends all messages, from two buffers: as soon as the send of one is complete its buffer is
   scribbled over, and taken for a later one. Several may be under way. */
#define COMPLETE(n) (num[n].at == DONE && QUIET(A))
proctype sender() {
end:	do
	:: d_step { next[A] < MSGS && sbuf[next[A] % 2] == 0 ->
		sbuf[next[A] % 2] = next[A] + 1;
		say(A, MATCH, 0)
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
	/* The user sends, from the one buffer. */
	:: d_step { s_state == S_IDLE && sent < MSGS ->
		sbuf[0] = sent + 1;
#ifdef GET
		s_key = sent + 1;
#endif
		say(A, RNDV, sent + 1);
		s_state = S_ANNOUNCED
	   }
	/* A piece goes by either rail. */
	:: d_step { s_state == S_PUSHING && !s_broken && s_next < PIECES && CAN_POST(0, A) ->
		post(0, A, (s_put -> WRITE : PIECE), s_next, s_h, POSTED);
		s_next++;
		s_out++
	   }
	:: d_step { s_state == S_PUSHING && !s_broken && s_next < PIECES && CAN_POST(1, A) ->
		post(1, A, (s_put -> WRITE : PIECE), s_next, s_h, POSTED);
		s_next++;
		s_out++
	   }
	/* All pieces are there. */
	:: d_step { s_state == S_PUSHING && !s_broken && s_next == PIECES && s_out == 0 ->
		s_next = 0;
		s_state = S_FINISHING;
		if
		:: s_put -> say(A, FIN, s_h)
		:: else
		fi;
		s_h = 0;
		s_put = 0
	   }
	/* One was not, as far as is known. */
	:: d_step { s_state == S_PUSHING && s_broken && s_out == 0 && FENCED(A) ->
		s_next = 0;
		s_broken = false;
		s_put = 0;
		s_state = S_RESTARTING;
		say(A, RNDVRESTARTNOTIFY, s_h);
		s_h = 0
	   }
	/* The buffer is the user's, who scribbles over it. */
	:: d_step { s_state == S_FINISHING && unanswered[A] == 0 && QUIET(A) ->
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
	r_state = R_READING
#else
	r_state = R_ACTIVE;
#ifdef PUT
	r_key = r_h;
	say(B, INVITE, r_h)
#else
	say(B, ACK, r_h)
#endif
#endif
}

proctype receiver() {
end:	do
	/* The user receives what was announced, into the one buffer. */
	:: d_step { r_state == R_USER && announced > received -> match_rndv() }
	/* The sender asks to begin anew. */
	:: d_step { r_notified && unanswered[B] == 0 ->
		r_notified = false;
#ifndef NO_ATTEMPT
		handles++;
		r_h = handles;
#endif
		r_key = 0;
		r_count = 0;
		say(B, RNDVRESTARTACK, r_h)
	   }
#ifdef GET
	:: d_step { r_state == R_READING && !r_broken && r_next < PIECES && CAN_POST(0, B) ->
		post(0, B, READ, r_next, received + 1, POSTED);
		r_next++;
		r_out++
	   }
	:: d_step { r_state == R_READING && !r_broken && r_next < PIECES && CAN_POST(1, B) ->
		post(1, B, READ, r_next, received + 1, POSTED);
		r_next++;
		r_out++
	   }
	:: d_step { r_state == R_READING && !r_broken && r_next == PIECES && r_out == 0 ->
		r_next = 0;
		r_h = 0;
		r_state = R_FINISHING;
		say(B, FIN, 0)
	   }
	:: atomic { r_state == R_READING && r_broken && r_out == 0 && FENCED(B) ->
		r_next = 0;
		r_broken = false;
		if
		:: true			/* reads it all again */
		:: r_state = R_ACTIVE;	/* no rail that is left can read */
		   say(B, ACK, r_h)
		fi
	   }
#endif
	:: d_step { r_state == R_FINISHING && unanswered[B] == 0 && QUIET(B) ->
		received++;
		assert(rbuf[0] == received && rbuf[1] == received);	/* the right bytes */
		r_state = R_USER;
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
	/* Nothing can happen any more: all is done, or no rail is left. */
	timeout -> assert(!ALIVE(0) && !ALIVE(1) || sent == MSGS && received == MSGS)
}
