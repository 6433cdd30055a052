// A libibverbs.so.1 for tests with the device fake0. It resembles the oldest libraries: it has no
// GID tables and no extended context. Unlike rxe, it raises all events and returns all kinds of
// error numbers. A posted request completes at once, and its completion contains the request's
// arguments.
//
// Tests control the device with commands encoded as partition key indexes: see ibv_query_pkey.

#include <arpa/inet.h>
#include <errno.h>
#include "../rdmacore.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>


enum { QUEUE = 40, RING = 4096 };

struct fake_cq {
	struct ibv_cq cq;
	struct ibv_wc ring[RING];
	unsigned head, tail, reported, async_reported, broken;
};
struct fake_qp {
	struct ibv_qp qp;
	struct ibv_qp_attr attr;
	unsigned posted, reported, pending;
};
struct fake_srq {
	struct ibv_srq srq;
	uint32_t limit;
	unsigned reported, posted;
};
struct fake_context {
	struct ibv_context ctx;
	int events[2];
	// How calls fail: 0: return the error number, 1: return -1 and set errno, 2: return the
	// negative number.
	int style;
	struct fake_cq *cq; // the last CQ created; likewise qp and srq
	struct fake_qp *qp;
	struct fake_srq *srq;
	atomic_int hold; // HOLD: the next ibv_create_ah waits until it is 0; HOLDS: it waits
};
enum { HOLD = 1, HOLDS = 2 };
struct fake_channel {
	struct ibv_comp_channel ch;
	int events[2];
};

static struct ibv_device device = {.name = "fake0"};

// require_acked aborts the process where the library would wait forever for acknowledgments.
static void require_acked(const char *call, unsigned reported, unsigned completed)
{
	if (reported != completed) {
		fprintf(stderr, "%s would hang: %u events, %u acknowledged\n", call, reported, completed);
		abort();
	}
}

static int fail(struct ibv_context *ctx, int error)
{
	errno = 0;
	switch (((struct fake_context *)ctx)->style) {
	case 1:
		errno = error;
		return -1;
	case 2:
		return -error;
	}
	return error;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	struct fake_cq *c = (struct fake_cq *)qp->send_cq;

	for (; wr; wr = wr->next) {
		if (q->pending && q->posted == QUEUE) {
			*bad = wr;
			return fail(qp->context, ENOMEM);
		}
		if (q->pending) {
			q->posted++;
			continue;
		}
		struct ibv_wc wc = {
			.wr_id = wr->wr_id, .opcode = (enum ibv_wc_opcode)wr->opcode,
			.imm_data = wr->imm_data, .qp_num = qp->qp_num,
			.wc_flags = wr->opcode == IBV_WR_SEND_WITH_IMM ? IBV_WC_WITH_IMM : 0,
			.pkey_index = (uint16_t)wr->num_sge, .sl = (uint8_t)wr->send_flags,
			.dlid_path_bits = wr->next != NULL,
		};
		for (int i = 0; i < wr->num_sge; i++)
			wc.byte_len += wr->sg_list[i].length + wr->sg_list[i].lkey + (uint32_t)wr->sg_list[i].addr;
		if (qp->qp_type == IBV_QPT_UD) {
			wc.src_qp = wr->wr.ud.remote_qpn;
			wc.vendor_err = wr->wr.ud.remote_qkey;
			wc.slid = wr->wr.ud.ah->handle;
		} else if (wr->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
			wc.src_qp = (uint32_t)(wr->wr.atomic.remote_addr + wr->wr.atomic.compare_add + wr->wr.atomic.swap);
			wc.vendor_err = wr->wr.atomic.rkey;
		} else {
			wc.src_qp = (uint32_t)wr->wr.rdma.remote_addr;
			wc.vendor_err = wr->wr.rdma.rkey;
		}
		c->ring[c->tail++ % RING] = wc;
	}
	return 0;
}

static int recv_one(struct fake_cq *c, struct ibv_recv_wr *wr, uint32_t num)
{
	struct ibv_wc wc = {.wr_id = wr->wr_id, .opcode = IBV_WC_RECV, .qp_num = num, .pkey_index = (uint16_t)wr->num_sge};
	for (int i = 0; i < wr->num_sge; i++)
		wc.byte_len += wr->sg_list[i].length;
	// The receive is flushed. Its flag claims immediate data; the provider must not rely on the
	// flag.
	wc.status = IBV_WC_WR_FLUSH_ERR;
	wc.wc_flags = IBV_WC_WITH_IMM;
	wc.imm_data = 0x11223344;
	c->ring[c->tail++ % RING] = wc;
	return 0;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	(void)bad;
	for (; wr; wr = wr->next)
		recv_one((struct fake_cq *)qp->recv_cq, wr, qp->qp_num);
	return 0;
}

static int post_srq_recv(struct ibv_srq *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fake_srq *s = (struct fake_srq *)srq;
	for (; wr; wr = wr->next) {
		if (s->posted == QUEUE) {
			*bad = NULL; // does not name the refused request
			return fail(srq->context, ENOMEM);
		}
		s->posted++;
	}
	return 0;
}

static int poll_cq(struct ibv_cq *cq, int n, struct ibv_wc *wc)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	int i = 0;

	if (c->broken)
		return -2;
	while (i < n && c->head != c->tail)
		wc[i++] = c->ring[c->head++ % RING];
	return i;
}

// req_notify_cq raises an event at once.
static int req_notify_cq(struct ibv_cq *cq, int solicited)
{
	struct fake_channel *ch = (struct fake_channel *)cq->channel;
	(void)solicited;
	return write(ch->events[1], &cq, sizeof cq) == sizeof cq ? 0 : EIO;
}

struct ibv_device **ibv_get_device_list(int *n)
{
	struct ibv_device **list = calloc(2, sizeof *list);
	list[0] = &device;
	*n = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list) { free(list); }

const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct fake_context *f = calloc(1, sizeof *f);
	f->ctx.device = d;
	f->ctx.ops.post_send = post_send;
	f->ctx.ops.post_recv = post_recv;
	f->ctx.ops.post_srq_recv = post_srq_recv;
	f->ctx.ops.poll_cq = poll_cq;
	f->ctx.ops.req_notify_cq = req_notify_cq;
	if (pipe(f->events))
		return NULL;
	f->ctx.async_fd = f->events[0];
	return &f->ctx;
}

int ibv_close_device(struct ibv_context *ctx)
{
	struct fake_context *f = (struct fake_context *)ctx;
	close(f->events[0]);
	close(f->events[1]);
	free(f);
	return 0;
}

int ibv_get_async_event(struct ibv_context *ctx, struct ibv_async_event *ev)
{
	if (read(ctx->async_fd, ev, sizeof *ev) != sizeof *ev)
		return -1;
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		((struct fake_cq *)ev->element.cq)->async_reported++;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		((struct fake_srq *)ev->element.srq)->reported++;
		break;
	case IBV_EVENT_QP_FATAL ... IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		((struct fake_qp *)ev->element.qp)->reported++;
	default:
		break;
	}
	return 0;
}

void ibv_ack_async_event(struct ibv_async_event *ev)
{
	switch (ev->event_type) {
	case IBV_EVENT_CQ_ERR:
		ev->element.cq->async_events_completed++;
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		ev->element.srq->events_completed++;
		break;
	case IBV_EVENT_QP_FATAL ... IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		ev->element.qp->events_completed++;
	default:
		break;
	}
}

int ibv_query_device(struct ibv_context *ctx, struct ibv_device_attr *a)
{
	(void)ctx;
	memset(a, 0, sizeof *a);
	a->phys_port_cnt = 2;
	a->max_qp = 11;
	a->max_qp_rd_atom = 3;
	a->max_qp_init_rd_atom = 4;
	a->max_mr_size = UINT64_C(1) << 40;
	a->atomic_cap = IBV_ATOMIC_HCA;
	a->vendor_id = 0x2c9;
	a->device_cap_flags = IBV_DEVICE_PORT_ACTIVE_EVENT;
	return 0;
}

// The oldest version of ibv_query_port does not fill the last members of the struct.
int ibv_query_port(struct ibv_context *ctx, uint8_t port, struct _compat_ibv_port_attr *a)
{
	struct ibv_port_attr *p = (struct ibv_port_attr *)a;
	if (port > 2)
		return fail(ctx, EINVAL);
	p->state = IBV_PORT_ACTIVE;
	p->max_mtu = IBV_MTU_4096;
	p->active_mtu = IBV_MTU_2048;
	p->gid_tbl_len = 3;
	p->max_msg_sz = 1 << 30;
	p->pkey_tbl_len = 7;
	p->lid = 0x1234;
	p->sm_lid = 0x4321;
	p->lmc = 2;
	p->active_width = 2;
	p->active_speed = 32;
	p->link_layer = IBV_LINK_LAYER_INFINIBAND;
	p->flags = port == 2 ? IBV_QPF_GRH_REQUIRED : 0;
	return 0;
}

int ibv_query_gid(struct ibv_context *ctx, uint8_t port, int index, union ibv_gid *gid)
{
	(void)ctx;
	memset(gid, 0, sizeof *gid);
	if (index != 1) {
		gid->raw[0] = 0xfe;
		gid->raw[14] = port;
		gid->raw[15] = (uint8_t)index;
	}
	return 0;
}

// Indexes from 1000 on are commands: 1000+T raises event T on the object created last; 2000 fails
// the last CQ; 2100+S sets the style of failures; 2200 keeps posted requests pending; 2300+S moves
// the last queue pair to state S without an event.
int ibv_query_pkey(struct ibv_context *ctx, uint8_t port, int index, uint16_t *key)
{
	struct fake_context *f = (struct fake_context *)ctx;
	(void)port;
	*key = htons(0x8001);
	if (index >= 2400)
		atomic_store(&f->hold, index - 2400);
	else if (index >= 2300)
		f->qp->attr.qp_state = (enum ibv_qp_state)(index - 2300);
	else if (index == 2200)
		f->qp->pending = 1;
	else if (index >= 2100)
		f->style = index - 2100;
	else if (index == 2000)
		f->cq->broken = 1;
	else if (index >= 1000) {
		struct ibv_async_event ev = {.event_type = (enum ibv_event_type)(index - 1000)};
		switch (ev.event_type) {
		case IBV_EVENT_CQ_ERR:
			ev.element.cq = &f->cq->cq;
			break;
		case IBV_EVENT_SRQ_ERR:
		case IBV_EVENT_SRQ_LIMIT_REACHED:
			ev.element.srq = &f->srq->srq;
			break;
		case IBV_EVENT_QP_FATAL ... IBV_EVENT_PATH_MIG_ERR:
		case IBV_EVENT_QP_LAST_WQE_REACHED:
			ev.element.qp = &f->qp->qp;
			break;
		default:
			ev.element.port_num = 2;
		}
		return write(f->events[1], &ev, sizeof ev) == sizeof ev ? 0 : EIO;
	} else if (index >= 7)
		return fail(ctx, EINVAL);
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *ctx)
{
	struct ibv_pd *pd = calloc(1, sizeof *pd);
	pd->context = ctx;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

// The lengths 101 to 104 select an error.
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	int error = length == 101 ? ENOMEM : length == 102 ? EAGAIN : length == 103 ? EPERM : length == 104 ? EFAULT : 0;
	if (error) {
		errno = error;
		return NULL;
	}
	struct ibv_mr *mr = calloc(1, sizeof *mr);
	*mr = (struct ibv_mr){.context = pd->context, .pd = pd, .addr = addr, .length = length, .lkey = 0x100 + (uint32_t)access, .rkey = 0x200 + (uint32_t)access};
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *ctx)
{
	struct fake_channel *ch = calloc(1, sizeof *ch);
	if (pipe(ch->events))
		return NULL;
	ch->ch.context = ctx;
	ch->ch.fd = ch->events[0];
	return &ch->ch;
}

int ibv_destroy_comp_channel(struct ibv_comp_channel *c)
{
	struct fake_channel *ch = (struct fake_channel *)c;
	close(ch->events[0]);
	close(ch->events[1]);
	free(ch);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *ctx, int cqe, void *context, struct ibv_comp_channel *channel, int vector)
{
	struct fake_cq *c = calloc(1, sizeof *c);
	(void)vector;
	c->cq.context = ctx;
	c->cq.channel = channel;
	c->cq.cq_context = context;
	c->cq.cqe = cqe + 1;
	((struct fake_context *)ctx)->cq = c;
	return &c->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	struct fake_cq *c = (struct fake_cq *)cq;
	require_acked("ibv_destroy_cq", c->reported, cq->comp_events_completed);
	require_acked("ibv_destroy_cq", c->async_reported, cq->async_events_completed);
	free(c);
	return 0;
}

int ibv_get_cq_event(struct ibv_comp_channel *channel, struct ibv_cq **cq, void **context)
{
	if (read(channel->fd, cq, sizeof *cq) != sizeof *cq)
		return -1;
	((struct fake_cq *)*cq)->reported++;
	*context = (*cq)->cq_context;
	return 0;
}

void ibv_ack_cq_events(struct ibv_cq *cq, unsigned n) { cq->comp_events_completed += n; }

struct ibv_srq *ibv_create_srq(struct ibv_pd *pd, struct ibv_srq_init_attr *init)
{
	struct fake_srq *s = calloc(1, sizeof *s);
	s->srq.context = pd->context;
	s->srq.srq_context = init->srq_context;
	((struct fake_context *)pd->context)->srq = s;
	return &s->srq;
}

int ibv_modify_srq(struct ibv_srq *srq, struct ibv_srq_attr *a, int mask)
{
	if (mask != IBV_SRQ_LIMIT || a->srq_limit >= 100)
		return fail(srq->context, EINVAL);
	((struct fake_srq *)srq)->limit = a->srq_limit;
	return 0;
}

int ibv_query_srq(struct ibv_srq *srq, struct ibv_srq_attr *a)
{
	*a = (struct ibv_srq_attr){.max_wr = 40, .max_sge = 4, .srq_limit = ((struct fake_srq *)srq)->limit};
	return 0;
}

int ibv_destroy_srq(struct ibv_srq *srq)
{
	require_acked("ibv_destroy_srq", ((struct fake_srq *)srq)->reported, srq->events_completed);
	free(srq);
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	static uint32_t number = 0x100;
	struct fake_qp *q = calloc(1, sizeof *q);
	if (init->cap.max_send_wr > 1000) {
		errno = ENOMEM;
		return NULL;
	}
	init->cap.max_inline_data += 100;
	q->qp.context = pd->context;
	q->qp.qp_context = init->qp_context;
	q->qp.pd = pd;
	q->qp.send_cq = init->send_cq;
	q->qp.recv_cq = init->recv_cq;
	q->qp.qp_type = init->qp_type;
	q->qp.qp_num = number++;
	((struct fake_context *)pd->context)->qp = q;
	return &q->qp;
}

// A device ignores attributes that the mask does not select; this one stores them, and Query
// returns them.
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct fake_qp *q = (struct fake_qp *)qp;
	enum ibv_qp_state before = q->attr.qp_state;
	if (mask & IBV_QP_RQ_PSN && a->rq_psn == 0xbad)
		return fail(qp->context, EINVAL);
	q->attr = *a;
	if (!(mask & IBV_QP_STATE))
		q->attr.qp_state = before;
	return 0;
}

int ibv_query_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask, struct ibv_qp_init_attr *init)
{
	(void)mask;
	memset(init, 0, sizeof *init);
	*a = ((struct fake_qp *)qp)->attr;
	a->sq_draining = a->qp_state == IBV_QPS_SQD;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	require_acked("ibv_destroy_qp", ((struct fake_qp *)qp)->reported, qp->events_completed);
	free(qp);
	return 0;
}

struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct fake_context *f = (struct fake_context *)pd->context;
	int held = HOLD;

	if (a->port_num == 2) {
		errno = ENETUNREACH;
		return NULL;
	}
	if (atomic_compare_exchange_strong(&f->hold, &held, HOLDS))
		while (atomic_load(&f->hold) == HOLDS)
			usleep(1000);
	struct ibv_ah *ah = calloc(1, sizeof *ah);
	ah->context = pd->context;
	ah->pd = pd;
	ah->handle = a->dlid;
	return ah;
}

#ifndef INCOMPLETE
int ibv_destroy_ah(struct ibv_ah *ah)
{
	free(ah);
	return 0;
}
#endif
