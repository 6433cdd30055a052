//go:build cgo && linux && !386 && !arm && !mips && !mipsle

#define _GNU_SOURCE
#include "shim.h"
#include "rdmacore.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(void *) == 8, "addresses are passed as 64 bits");

// verbs.WC and struct mpigo_wc have the layout of struct ibv_wc.
#define SAME(ours, theirs) \
	_Static_assert(offsetof(struct mpigo_wc, ours) == offsetof(struct ibv_wc, theirs), "ibv_wc." #theirs); \
	_Static_assert(sizeof(((struct mpigo_wc *)0)->ours) == sizeof(((struct ibv_wc *)0)->theirs), "ibv_wc." #theirs)
_Static_assert(sizeof(struct mpigo_wc) == sizeof(struct ibv_wc), "ibv_wc");
SAME(id, wr_id);
SAME(status, status);
SAME(opcode, opcode);
SAME(vendor_err, vendor_err);
SAME(byte_len, byte_len);
SAME(imm, imm_data);
SAME(qp_num, qp_num);
SAME(src_qp, src_qp);
SAME(flags, wc_flags);
SAME(pkey_index, pkey_index);
SAME(slid, slid);
SAME(sl, sl);
SAME(dlid_path_bits, dlid_path_bits);
#undef SAME

// struct mpigo_sge has the layout of struct ibv_sge, so lists are passed without a copy.
_Static_assert(sizeof(struct mpigo_sge) == sizeof(struct ibv_sge), "ibv_sge");
_Static_assert(offsetof(struct mpigo_sge, addr) == offsetof(struct ibv_sge, addr), "ibv_sge.addr");
_Static_assert(offsetof(struct mpigo_sge, length) == offsetof(struct ibv_sge, length), "ibv_sge.length");
_Static_assert(offsetof(struct mpigo_sge, lkey) == offsetof(struct ibv_sge, lkey), "ibv_sge.lkey");

// The constants of package verbs have these values.
_Static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_SEND_WITH_IMM == 3 && IBV_WR_RDMA_READ == 4 && IBV_WR_ATOMIC_FETCH_AND_ADD == 6, "ibv_wr_opcode");
_Static_assert(IBV_SEND_FENCE == 1 && IBV_SEND_SIGNALED == 2 && IBV_SEND_SOLICITED == 4 && IBV_SEND_INLINE == 8, "ibv_send_flags");
_Static_assert(IBV_WC_GENERAL_ERR == 21 && IBV_WC_RECV == 128 && IBV_WC_RECV_RDMA_WITH_IMM == 129, "ibv_wc");
_Static_assert(IBV_WC_GRH == 1 && IBV_WC_WITH_IMM == 2, "ibv_wc_flags");
_Static_assert(IBV_QPS_RESET == 0 && IBV_QPS_SQE == 5 && IBV_QPS_ERR == 6, "ibv_qp_state");
_Static_assert(IBV_QP_STATE == 1 && IBV_QP_DEST_QPN == 1 << 20, "ibv_qp_attr_mask");
_Static_assert(IBV_EVENT_CQ_ERR == 0 && IBV_EVENT_GID_CHANGE == 18, "ibv_event_type");
_Static_assert(IBV_ACCESS_LOCAL_WRITE == 1 && IBV_ACCESS_REMOTE_ATOMIC == 8, "ibv_access_flags");
_Static_assert(IBV_MTU_256 == 1 && IBV_MTU_4096 == 5, "ibv_mtu");
_Static_assert(IBV_QPT_RC == 2 && IBV_QPT_UC == 3 && IBV_QPT_UD == 4, "ibv_qp_type");

// REQUIRED lists the functions of the library, without the prefix ibv_, with their symbol versions,
// unchanged since 2006. ibv_poll_cq, ibv_post_send and similar functions are inline in the header.
#define REQUIRED(X) \
	X(get_device_list, 1.1) X(free_device_list, 1.1) X(get_device_name, 1.1) X(open_device, 1.1) \
	X(close_device, 1.1) X(get_async_event, 1.1) X(ack_async_event, 1.1) X(query_device, 1.1) \
	X(query_port, 1.1) X(query_gid, 1.1) X(query_pkey, 1.1) X(alloc_pd, 1.1) X(dealloc_pd, 1.1) \
	X(reg_mr, 1.1) X(dereg_mr, 1.1) X(create_comp_channel, 1.0) X(destroy_comp_channel, 1.0) \
	X(create_cq, 1.1) X(destroy_cq, 1.1) X(get_cq_event, 1.1) X(ack_cq_events, 1.1) \
	X(create_srq, 1.1) X(modify_srq, 1.1) X(query_srq, 1.1) X(destroy_srq, 1.1) X(create_qp, 1.1) X(modify_qp, 1.1) \
	X(query_qp, 1.1) X(destroy_qp, 1.1) X(create_ah, 1.1) X(destroy_ah, 1.1)

struct lib {
#define FIELD(name, version) __typeof__(ibv_##name) *name;
	REQUIRED(FIELD)
#undef FIELD
	// _ibv_query_gid_table of IBVERBS_1.11; NULL in older libraries
	ssize_t (*query_gid_table)(struct ibv_context *, struct ibv_gid_entry *, size_t max, uint32_t flags, size_t entry_size);
};
_Static_assert(sizeof(struct lib) <= sizeof(struct mpigo_lib), "MPIGO_LIB_WORDS is too small");

#define LIB(l) ((const struct lib *)(l))
#define AT(type, number) ((type *)(uintptr_t)(number))
#define NUMBER(pointer) ((uint64_t)(uintptr_t)(pointer))

static void *symbol(void *handle, const char *name, const char *version)
{
#ifdef __GLIBC__
	return dlvsym(handle, name, version);
#else
	return dlsym(handle, name); // a libc without symbol versions
#endif
}

int mpigo_load(struct mpigo_lib *out, const char *file, char *text, size_t size)
{
	struct lib *lib = (struct lib *)out;
	// Never closed: drivers leave threads and handlers behind.
	void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);

	if (!handle) {
		snprintf(text, size, "%s", dlerror());
		return 1;
	}
#define NEED(name, version) \
	if (!(lib->name = (__typeof__(lib->name))symbol(handle, "ibv_" #name, "IBVERBS_" #version))) { \
		snprintf(text, size, "%s has no ibv_%s of version IBVERBS_%s: it is too old or another library", file, #name, #version); \
		dlclose(handle); \
		return 1; \
	}
	REQUIRED(NEED)
	lib->query_gid_table = (__typeof__(lib->query_gid_table))symbol(handle, "_ibv_query_gid_table", "IBVERBS_1.11");
	return 0;
}

// failed returns the error number of a call. Calls return the number, or -1 and set errno, or
// return the negative number.
static int failed(int rc)
{
	if (rc == 0)
		return 0;
	if (rc > 0)
		return rc;
	if (rc == -1 && errno > 0)
		return errno;
	return -rc;
}

// null returns the error number of a call that returned NULL.
static int null(void) { return errno > 0 ? errno : EIO; }

// Posting and polling.

// CHUNK is the number of requests in a chain on the stack, 4 KiB.
enum { CHUNK = 32 };

static int fill_send(const struct mpigo_qp *q, const struct mpigo_send_wr *w, struct ibv_send_wr *s, const struct mpigo_ah *ahs, uint32_t nahs)
{
	if (w->num_sge > q->max_send_sge || w->num_sge > MPIGO_MAX_SGE || w->opcode > IBV_WR_ATOMIC_FETCH_AND_ADD || w->flags > 15)
		return EINVAL;
	s->wr_id = w->id;
	s->next = NULL;
	s->sg_list = (struct ibv_sge *)w->sge;
	s->num_sge = (int)w->num_sge;
	s->opcode = w->opcode;
	s->send_flags = w->flags;
	s->imm_data = htonl(w->imm);
	if (w->flags & IBV_SEND_INLINE) {
		uint64_t sum = 0;
		for (uint32_t i = 0; i < w->num_sge; i++)
			sum += w->sge[i].length;
		if (sum > q->max_inline)
			return EINVAL;
	}
	if (q->ud) {
		uint64_t i = (w->ah & 0xffffffff) - 1; // 0 becomes out of range
		if (w->opcode != IBV_WR_SEND && w->opcode != IBV_WR_SEND_WITH_IMM)
			return EINVAL;
		if (i >= nahs || !ahs[i].ah || ahs[i].generation != w->ah >> 32 || ahs[i].pd != q->pd)
			return EINVAL;
		s->wr.ud.ah = AT(struct ibv_ah, ahs[i].ah);
		s->wr.ud.remote_qpn = w->remote_qpn;
		s->wr.ud.remote_qkey = w->remote_qkey;
		return 0;
	}
	if (w->opcode >= IBV_WR_ATOMIC_CMP_AND_SWP) {
		s->wr.atomic.remote_addr = w->remote_addr;
		s->wr.atomic.compare_add = w->compare_add;
		s->wr.atomic.swap = w->swap;
		s->wr.atomic.rkey = w->rkey;
	} else {
		s->wr.rdma.remote_addr = w->remote_addr;
		s->wr.rdma.rkey = w->rkey;
	}
	return 0;
}

// result encodes the result of a post: the number of accepted requests and an error number.
static uint64_t result(uint32_t accepted, int error) { return (uint64_t)(uint32_t)error << 32 | accepted; }

uint64_t mpigo_post_send(const struct mpigo_qp *q, const struct mpigo_send_wr *wrs, uint32_t n, const struct mpigo_ah *ahs, uint32_t nahs)
{
	struct ibv_qp *qp = AT(struct ibv_qp, q->qp);
	struct ibv_send_wr chain[CHUNK], *bad;
	uint32_t accepted = 0;

	while (accepted < n) {
		uint32_t k = 0;
		int malformed = 0, error;
		while (k < CHUNK && accepted + k < n && !(malformed = fill_send(q, &wrs[accepted + k], &chain[k], ahs, nahs))) {
			if (k > 0)
				chain[k - 1].next = &chain[k];
			k++;
		}
		if (k > 0) {
			bad = NULL;
			if ((error = failed(qp->context->ops.post_send(qp, chain, &bad))))
				return result(accepted + (bad ? (uint32_t)(bad - chain) : 0), error);
			accepted += k;
		}
		if (malformed)
			return result(accepted, malformed);
	}
	return result(accepted, 0);
}

typedef int (*post_recv_fn)(void *queue, struct ibv_recv_wr *, struct ibv_recv_wr **);

static uint64_t post_recvs(void *queue, post_recv_fn post, uint32_t max_sge, const struct mpigo_recv_wr *wrs, uint32_t n)
{
	struct ibv_recv_wr chain[CHUNK], *bad;
	uint32_t accepted = 0;

	while (accepted < n) {
		uint32_t k = 0;
		int malformed = 0, error;
		for (; k < CHUNK && accepted + k < n; k++) {
			const struct mpigo_recv_wr *w = &wrs[accepted + k];
			if (w->num_sge > max_sge || w->num_sge > MPIGO_MAX_SGE) {
				malformed = EINVAL;
				break;
			}
			chain[k].wr_id = w->id;
			chain[k].next = NULL;
			chain[k].sg_list = (struct ibv_sge *)w->sge;
			chain[k].num_sge = (int)w->num_sge;
			if (k > 0)
				chain[k - 1].next = &chain[k];
		}
		if (k > 0) {
			bad = NULL;
			if ((error = failed(post(queue, chain, &bad))))
				return result(accepted + (bad ? (uint32_t)(bad - chain) : 0), error);
			accepted += k;
		}
		if (malformed)
			return result(accepted, malformed);
	}
	return result(accepted, 0);
}

static int post_qp(void *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ((struct ibv_qp *)qp)->context->ops.post_recv(qp, wr, bad);
}

static int post_srq(void *srq, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	return ((struct ibv_srq *)srq)->context->ops.post_srq_recv(srq, wr, bad);
}

uint64_t mpigo_post_recv(const struct mpigo_qp *q, const struct mpigo_recv_wr *wrs, uint32_t n)
{
	return post_recvs(AT(void, q->qp), post_qp, q->max_recv_sge, wrs, n);
}

uint64_t mpigo_post_srq_recv(uint64_t srq, uint32_t max_sge, const struct mpigo_recv_wr *wrs, uint32_t n)
{
	return post_recvs(AT(void, srq), post_srq, max_sge, wrs, n);
}

int mpigo_poll_cq(uint64_t number, struct mpigo_wc *wcs, int n)
{
	struct ibv_cq *cq = AT(struct ibv_cq, number);
	int got = cq->context->ops.poll_cq(cq, n, (struct ibv_wc *)wcs);

	for (int i = 0; i < got; i++) // the flags of a failed completion are invalid
		if (wcs[i].status == IBV_WC_SUCCESS && wcs[i].flags & IBV_WC_WITH_IMM)
			wcs[i].imm = ntohl(wcs[i].imm);
	return got;
}

int mpigo_req_notify_cq(uint64_t number, int solicited_only)
{
	struct ibv_cq *cq = AT(struct ibv_cq, number);
	return failed(cq->context->ops.req_notify_cq(cq, solicited_only));
}

// Devices and ports.

int mpigo_device_list(const struct mpigo_lib *lib, uint64_t *list, uint64_t *count)
{
	int n = 0;
	errno = 0;
	struct ibv_device **devices = LIB(lib)->get_device_list(&n);

	if (!devices)
		return null();
	*list = NUMBER(devices);
	*count = (uint64_t)n;
	return 0;
}

const char *mpigo_device_name(const struct mpigo_lib *lib, uint64_t list, uint64_t i)
{
	return LIB(lib)->get_device_name(AT(struct ibv_device *, list)[i]);
}

void mpigo_free_device_list(const struct mpigo_lib *lib, uint64_t list) { LIB(lib)->free_device_list(AT(struct ibv_device *, list)); }

int mpigo_open(const struct mpigo_lib *lib, uint64_t list, uint64_t i, uint64_t *ctx, int *async_fd)
{
	errno = 0;
	struct ibv_context *c = LIB(lib)->open_device(AT(struct ibv_device *, list)[i]);

	if (!c)
		return null();
	*ctx = NUMBER(c);
	*async_fd = c->async_fd;
	return 0;
}

int mpigo_close(const struct mpigo_lib *lib, uint64_t ctx) { return failed(LIB(lib)->close_device(AT(struct ibv_context, ctx))); }

int mpigo_query_device(const struct mpigo_lib *lib, uint64_t ctx, struct mpigo_device_attr *a)
{
	struct ibv_device_attr d = {};
	int error = failed(LIB(lib)->query_device(AT(struct ibv_context, ctx), &d));

	if (error)
		return error;
	*a = (struct mpigo_device_attr){
		.ports = d.phys_port_cnt, .max_qp = d.max_qp, .max_qp_wr = d.max_qp_wr,
		.max_sge = d.max_sge, .max_cq = d.max_cq, .max_cqe = d.max_cqe, .max_mr = d.max_mr,
		.max_pd = d.max_pd, .max_srq = d.max_srq, .max_srq_wr = d.max_srq_wr,
		.max_qp_rd_atom = d.max_qp_rd_atom, .max_qp_init_rd_atom = d.max_qp_init_rd_atom,
		.atomics = d.atomic_cap != IBV_ATOMIC_NONE, .vendor_id = d.vendor_id,
		.max_mr_size = d.max_mr_size,
		.cur_state = (d.device_cap_flags & IBV_DEVICE_CURR_QP_STATE_MOD) != 0,
		.port_events = (d.device_cap_flags & IBV_DEVICE_PORT_ACTIVE_EVENT) != 0,
	};
	return 0;
}

// mpigo_query_port does what the header's inline ibv_query_port does: it falls back to a function
// that fills a shorter struct. The buffer here is longer than any struct. Newer libraries append
// the speed as 32 bits, for speeds that do not fit in 8 bits.
int mpigo_query_port(const struct mpigo_lib *lib, uint64_t number, uint32_t port, struct mpigo_port_attr *a)
{
	union {
		struct ibv_port_attr attr;
		struct {
			char known[52];
			uint32_t active_speed_ex;
		} newer;
		char room[256];
	} p = {};
	_Static_assert(offsetof(struct ibv_port_attr, port_cap_flags2) == 48, "active_speed_ex follows");
	struct ibv_context *ctx = AT(struct ibv_context, number);
	struct verbs_context *v = verbs_get_ctx_op(ctx, query_port);
	int error = failed(v ? v->query_port(ctx, (uint8_t)port, &p.attr, sizeof p)
			     : LIB(lib)->query_port(ctx, (uint8_t)port, (struct _compat_ibv_port_attr *)&p));

	if (error)
		return error;
	*a = (struct mpigo_port_attr){
		.state = p.attr.state, .max_mtu = p.attr.max_mtu, .active_mtu = p.attr.active_mtu,
		.gids = p.attr.gid_tbl_len < 0 ? 0 : (uint32_t)p.attr.gid_tbl_len,
		.pkeys = p.attr.pkey_tbl_len, .max_msg = p.attr.max_msg_sz,
		.width = p.attr.active_width,
		.speed = p.newer.active_speed_ex ? p.newer.active_speed_ex : p.attr.active_speed,
		.lid = p.attr.lid, .lmc = p.attr.lmc, .sm_lid = p.attr.sm_lid, .link = p.attr.link_layer,
		.grh_required = (p.attr.flags & IBV_QPF_GRH_REQUIRED) != 0,
	};
	return 0;
}

int mpigo_query_pkey(const struct mpigo_lib *lib, uint64_t ctx, uint32_t port, int index, uint16_t *pkey)
{
	uint16_t key = 0;
	errno = 0;
	int error = failed(LIB(lib)->query_pkey(AT(struct ibv_context, ctx), (uint8_t)port, index, &key));

	*pkey = ntohs(key);
	return error;
}

int mpigo_query_gid(const struct mpigo_lib *lib, uint64_t ctx, uint32_t port, int index, uint8_t *gid)
{
	errno = 0;
	return failed(LIB(lib)->query_gid(AT(struct ibv_context, ctx), (uint8_t)port, index, (union ibv_gid *)gid));
}

int mpigo_gid_table(const struct mpigo_lib *lib, uint64_t ctx, struct mpigo_gid *entries, uint32_t max, uint32_t *count)
{
	if (!LIB(lib)->query_gid_table)
		return ENOSYS;
	struct ibv_gid_entry *e = calloc(max, sizeof *e);
	if (!e)
		return ENOMEM;
	errno = 0;
	ssize_t n = LIB(lib)->query_gid_table(AT(struct ibv_context, ctx), e, max, 0, sizeof *e);
	int error = n < 0 ? failed((int)n) : 0;
	*count = 0;
	for (ssize_t i = 0; i < n && i < (ssize_t)max; i++) {
		struct mpigo_gid *g = &entries[(*count)++];
		memcpy(g->gid, e[i].gid.raw, sizeof g->gid);
		g->index = e[i].gid_index;
		g->port = e[i].port_num;
		g->type = e[i].gid_type;
	}
	free(e);
	return error;
}

// Objects.

#define CREATED(pointer, out) \
	if (!(pointer)) \
		return null(); \
	*(out) = NUMBER(pointer)

int mpigo_alloc_pd(const struct mpigo_lib *lib, uint64_t ctx, uint64_t *pd)
{
	errno = 0;
	struct ibv_pd *p = LIB(lib)->alloc_pd(AT(struct ibv_context, ctx));

	CREATED(p, pd);
	return 0;
}

int mpigo_dealloc_pd(const struct mpigo_lib *lib, uint64_t pd) { return failed(LIB(lib)->dealloc_pd(AT(struct ibv_pd, pd))); }

int mpigo_reg_mr(const struct mpigo_lib *lib, uint64_t pd, uint64_t addr, uint64_t length, uint32_t access, uint64_t *mr, uint32_t *lkey, uint32_t *rkey)
{
	errno = 0;
	struct ibv_mr *m = (LIB(lib)->reg_mr)(AT(struct ibv_pd, pd), AT(void, addr), length, (int)access);

	CREATED(m, mr);
	*lkey = m->lkey;
	*rkey = m->rkey;
	return 0;
}

int mpigo_dereg_mr(const struct mpigo_lib *lib, uint64_t mr) { return failed(LIB(lib)->dereg_mr(AT(struct ibv_mr, mr))); }

static struct ibv_ah_attr ah_attr(const struct mpigo_ah_attr *a)
{
	struct ibv_ah_attr out = {
		.dlid = a->dlid, .sl = a->sl, .src_path_bits = a->src_path_bits, .is_global = a->is_global, .port_num = a->port,
	};

	if (a->is_global) {
		memcpy(out.grh.dgid.raw, a->dgid, sizeof a->dgid);
		out.grh.sgid_index = a->sgid_index;
		out.grh.hop_limit = a->hop_limit;
		out.grh.traffic_class = a->traffic_class;
	}
	return out;
}

static struct mpigo_ah_attr ah_attr_back(const struct ibv_ah_attr *a)
{
	struct mpigo_ah_attr out = {
		.dlid = a->dlid, .sl = a->sl, .src_path_bits = a->src_path_bits, .is_global = a->is_global,
		.sgid_index = a->grh.sgid_index, .hop_limit = a->grh.hop_limit,
		.traffic_class = a->grh.traffic_class, .port = a->port_num,
	};

	memcpy(out.dgid, a->grh.dgid.raw, sizeof out.dgid);
	return out;
}

int mpigo_create_ah(const struct mpigo_lib *lib, uint64_t pd, const struct mpigo_ah_attr *attr, uint64_t *ah)
{
	struct ibv_ah_attr a = ah_attr(attr);
	errno = 0;
	struct ibv_ah *h = LIB(lib)->create_ah(AT(struct ibv_pd, pd), &a);

	CREATED(h, ah);
	return 0;
}

int mpigo_destroy_ah(const struct mpigo_lib *lib, uint64_t ah) { return failed(LIB(lib)->destroy_ah(AT(struct ibv_ah, ah))); }

int mpigo_create_channel(const struct mpigo_lib *lib, uint64_t ctx, uint64_t *channel, int *fd)
{
	errno = 0;
	struct ibv_comp_channel *c = LIB(lib)->create_comp_channel(AT(struct ibv_context, ctx));

	CREATED(c, channel);
	*fd = c->fd;
	return 0;
}

int mpigo_destroy_channel(const struct mpigo_lib *lib, uint64_t channel) { return failed(LIB(lib)->destroy_comp_channel(AT(struct ibv_comp_channel, channel))); }

int mpigo_create_cq(const struct mpigo_lib *lib, uint64_t ctx, int entries, uint64_t context, uint64_t channel, uint64_t *cq, int *granted)
{
	errno = 0;
	struct ibv_cq *c = LIB(lib)->create_cq(AT(struct ibv_context, ctx), entries, AT(void, context), AT(struct ibv_comp_channel, channel), 0);

	CREATED(c, cq);
	*granted = c->cqe;
	return 0;
}

int mpigo_destroy_cq(const struct mpigo_lib *lib, uint64_t cq) { return failed(LIB(lib)->destroy_cq(AT(struct ibv_cq, cq))); }

int mpigo_create_srq(const struct mpigo_lib *lib, uint64_t pd, uint64_t context, uint32_t *max_wr, uint32_t *max_sge, uint64_t *srq)
{
	struct ibv_srq_init_attr init = {
		.srq_context = AT(void, context),
		.attr = {.max_wr = *max_wr, .max_sge = *max_sge},
	};
	errno = 0;
	struct ibv_srq *s = LIB(lib)->create_srq(AT(struct ibv_pd, pd), &init);

	CREATED(s, srq);
	*max_wr = init.attr.max_wr;
	*max_sge = init.attr.max_sge;
	return 0;
}

int mpigo_srq_limit(const struct mpigo_lib *lib, uint64_t srq, uint32_t limit)
{
	struct ibv_srq_attr attr = {.srq_limit = limit};

	return failed(LIB(lib)->modify_srq(AT(struct ibv_srq, srq), &attr, IBV_SRQ_LIMIT));
}

int mpigo_query_srq(const struct mpigo_lib *lib, uint64_t srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit)
{
	struct ibv_srq_attr attr = {};
	int error = failed(LIB(lib)->query_srq(AT(struct ibv_srq, srq), &attr));

	*max_wr = attr.max_wr;
	*max_sge = attr.max_sge;
	*limit = attr.srq_limit;
	return error;
}

int mpigo_destroy_srq(const struct mpigo_lib *lib, uint64_t srq) { return failed(LIB(lib)->destroy_srq(AT(struct ibv_srq, srq))); }

int mpigo_create_qp(const struct mpigo_lib *lib, uint64_t pd, uint64_t context, int service, uint64_t send_cq, uint64_t recv_cq, uint64_t srq,
		    struct mpigo_cap *cap, int signal_all, uint64_t *qp, uint32_t *num)
{
	struct ibv_qp_init_attr init = {
		.qp_context = AT(void, context), .send_cq = AT(struct ibv_cq, send_cq),
		.recv_cq = AT(struct ibv_cq, recv_cq), .srq = AT(struct ibv_srq, srq),
		.cap = {cap->send_wr, cap->recv_wr, cap->send_sge, cap->recv_sge, cap->inline_data},
		.qp_type = service, .sq_sig_all = signal_all,
	};
	errno = 0;
	struct ibv_qp *q = LIB(lib)->create_qp(AT(struct ibv_pd, pd), &init);

	CREATED(q, qp);
	*num = q->qp_num;
	*cap = (struct mpigo_cap){init.cap.max_send_wr, init.cap.max_recv_wr, init.cap.max_send_sge, init.cap.max_recv_sge, init.cap.max_inline_data};
	return 0;
}

int mpigo_modify_qp(const struct mpigo_lib *lib, uint64_t qp, const struct mpigo_qp_attr *a, uint32_t mask)
{
	struct ibv_qp_attr attr = {
		.qp_state = a->state, .cur_qp_state = a->cur_state, .path_mtu = a->path_mtu,
		.path_mig_state = IBV_MIG_MIGRATED, .qkey = a->qkey, .rq_psn = a->rq_psn,
		.sq_psn = a->sq_psn, .dest_qp_num = a->dest_qpn, .qp_access_flags = a->access,
		.ah_attr = ah_attr(&a->ah), .alt_ah_attr = ah_attr(&a->alt_ah),
		.pkey_index = a->pkey_index, .alt_pkey_index = a->pkey_index,
		.en_sqd_async_notify = a->en_sqd_async_notify, .max_rd_atomic = a->max_rd_atomic,
		.max_dest_rd_atomic = a->max_dest_rd_atomic, .min_rnr_timer = a->min_rnr_timer,
		.port_num = a->port, .timeout = a->timeout, .retry_cnt = a->retry_cnt,
		.rnr_retry = a->rnr_retry, .alt_port_num = a->alt_ah.port,
		.alt_timeout = a->timeout,
	};

	return failed(LIB(lib)->modify_qp(AT(struct ibv_qp, qp), &attr, (int)mask));
}

int mpigo_query_qp(const struct mpigo_lib *lib, uint64_t qp, struct mpigo_qp_attr *a)
{
	struct ibv_qp_attr attr = {};
	struct ibv_qp_init_attr init = {};
	int error = failed(LIB(lib)->query_qp(AT(struct ibv_qp, qp), &attr, (IBV_QP_DEST_QPN << 1) - 1, &init));

	if (error)
		return error;
	*a = (struct mpigo_qp_attr){
		.state = attr.qp_state, .cur_state = attr.cur_qp_state, .path_mtu = attr.path_mtu,
		.qkey = attr.qkey, .rq_psn = attr.rq_psn, .sq_psn = attr.sq_psn,
		.dest_qpn = attr.dest_qp_num, .access = attr.qp_access_flags,
		.ah = ah_attr_back(&attr.ah_attr), .alt_ah = ah_attr_back(&attr.alt_ah_attr),
		.cap = {attr.cap.max_send_wr, attr.cap.max_recv_wr, attr.cap.max_send_sge, attr.cap.max_recv_sge, attr.cap.max_inline_data},
		.pkey_index = attr.pkey_index, .en_sqd_async_notify = attr.en_sqd_async_notify,
		.sq_draining = attr.sq_draining, .max_rd_atomic = attr.max_rd_atomic,
		.max_dest_rd_atomic = attr.max_dest_rd_atomic, .min_rnr_timer = attr.min_rnr_timer,
		.port = attr.port_num, .timeout = attr.timeout, .retry_cnt = attr.retry_cnt,
		.rnr_retry = attr.rnr_retry,
	};
	return 0;
}

int mpigo_destroy_qp(const struct mpigo_lib *lib, uint64_t qp) { return failed(LIB(lib)->destroy_qp(AT(struct ibv_qp, qp))); }

// Events.

int mpigo_async_event(const struct mpigo_lib *lib, uint64_t ctx, struct mpigo_event *out)
{
	struct ibv_async_event ev;

	errno = 0;
	if (LIB(lib)->get_async_event(AT(struct ibv_context, ctx), &ev))
		return null();
	*out = (struct mpigo_event){.type = ev.event_type};
	switch (ev.event_type) {
	case IBV_EVENT_CQ_ERR:
		out->context = NUMBER(ev.element.cq->cq_context);
		break;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR:
	case IBV_EVENT_COMM_EST:
	case IBV_EVENT_SQ_DRAINED:
	case IBV_EVENT_PATH_MIG:
	case IBV_EVENT_PATH_MIG_ERR:
	case IBV_EVENT_QP_LAST_WQE_REACHED:
		out->context = NUMBER(ev.element.qp->qp_context);
		break;
	case IBV_EVENT_SRQ_ERR:
	case IBV_EVENT_SRQ_LIMIT_REACHED:
		out->context = NUMBER(ev.element.srq->srq_context);
		break;
	case IBV_EVENT_PORT_ACTIVE:
	case IBV_EVENT_PORT_ERR:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_SM_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER:
	case IBV_EVENT_GID_CHANGE:
		out->port = (uint32_t)ev.element.port_num;
		break;
	default: // an event of the device, or a type that no object made here raises
		break;
	}
	return 0;
}

int mpigo_cq_event(const struct mpigo_lib *lib, uint64_t channel, uint64_t *context)
{
	struct ibv_cq *cq;
	void *c = NULL;

	errno = 0;
	if (LIB(lib)->get_cq_event(AT(struct ibv_comp_channel, channel), &cq, &c))
		return null();
	*context = NUMBER(c);
	return 0;
}

// An acknowledgment counts for the object; the event types here only select the kind of object.

void mpigo_ack_qp(const struct mpigo_lib *lib, uint64_t qp)
{
	struct ibv_async_event ev = {.element.qp = AT(struct ibv_qp, qp), .event_type = IBV_EVENT_QP_FATAL};
	LIB(lib)->ack_async_event(&ev);
}

void mpigo_ack_srq(const struct mpigo_lib *lib, uint64_t srq)
{
	struct ibv_async_event ev = {.element.srq = AT(struct ibv_srq, srq), .event_type = IBV_EVENT_SRQ_ERR};
	LIB(lib)->ack_async_event(&ev);
}

void mpigo_ack_cq(const struct mpigo_lib *lib, uint64_t cq)
{
	struct ibv_async_event ev = {.element.cq = AT(struct ibv_cq, cq), .event_type = IBV_EVENT_CQ_ERR};
	LIB(lib)->ack_async_event(&ev);
}

void mpigo_ack_cq_events(const struct mpigo_lib *lib, uint64_t cq, uint32_t n) { LIB(lib)->ack_cq_events(AT(struct ibv_cq, cq), n); }
