//go:build cgo && linux && !386 && !arm && !mips && !mipsle

// The interface of the verbs library for Go: structs of numbers, and functions that return 0 or an
// error number. Objects of the library are passed as numbers (their addresses), so cgo has no
// pointers to check.

#ifndef MPIGO_SHIM_H
#define MPIGO_SHIM_H

#include <stddef.h>
#include <stdint.h>

// mpigo_sge, mpigo_send_wr, mpigo_recv_wr and mpigo_wc have the layout of verbs.SGE, verbs.SendWR,
// verbs.RecvWR and verbs.WC; layout.go checks that. mpigo_sge and mpigo_wc have the layout of the
// library's structs; shim.c checks that.

enum { MPIGO_MAX_SGE = 4 };

struct mpigo_sge {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
};

struct mpigo_send_wr {
	uint64_t id;
	uint32_t opcode, flags, num_sge, imm; // imm in host byte order
	uint64_t remote_addr;
	uint32_t rkey, remote_qpn, remote_qkey, pad;
	uint64_t ah; // a handle, see struct mpigo_ah
	uint64_t compare_add, swap;
	struct mpigo_sge sge[MPIGO_MAX_SGE];
};

struct mpigo_recv_wr {
	uint64_t id;
	uint32_t num_sge, pad;
	struct mpigo_sge sge[MPIGO_MAX_SGE];
};

struct mpigo_wc {
	uint64_t id;
	uint32_t status, opcode, vendor_err, byte_len, imm, qp_num, src_qp, flags;
	uint16_t pkey_index, slid;
	uint8_t sl, dlid_path_bits;
	uint16_t pad;
};

// mpigo_ah is an entry of a device's table of address handles. A handle is generation<<32 |
// index+1. It is valid if the entry has that generation, has an ah and belongs to the protection
// domain of the queue pair.
struct mpigo_ah {
	uint64_t ah, pd;
	uint32_t generation, pad;
};

// mpigo_qp holds the attributes of a queue pair that posting needs.
struct mpigo_qp {
	uint64_t qp, pd;
	uint32_t max_send_sge, max_recv_sge, max_inline;
	uint32_t ud; // nonzero: requests need address handles
};

// mpigo_lib holds the functions of the library. It is opaque here; its size is MPIGO_LIB_WORDS
// words.
enum { MPIGO_LIB_WORDS = 48 };
struct mpigo_lib {
	uint64_t word[MPIGO_LIB_WORDS];
};

struct mpigo_device_attr {
	int32_t ports, max_qp, max_qp_wr, max_sge, max_cq, max_cqe, max_mr, max_pd, max_srq, max_srq_wr, max_qp_rd_atom,
		max_qp_init_rd_atom, atomics, cur_state, port_events;
	uint32_t vendor_id;
	uint64_t max_mr_size;
};

struct mpigo_port_attr {
	uint32_t state, max_mtu, active_mtu, gids, pkeys, max_msg, width, speed;
	uint16_t lid, sm_lid;
	uint8_t link, grh_required, lmc, pad;
};

struct mpigo_gid {
	uint8_t gid[16];
	uint32_t index, port, type, pad;
};

struct mpigo_ah_attr {
	uint8_t dgid[16];
	uint16_t dlid;
	uint8_t sl, is_global, sgid_index, hop_limit, traffic_class, port, src_path_bits, pad;
};

struct mpigo_cap {
	uint32_t send_wr, recv_wr, send_sge, recv_sge, inline_data;
};

struct mpigo_qp_attr {
	uint32_t state, cur_state, path_mtu, qkey, rq_psn, sq_psn, dest_qpn, access;
	struct mpigo_ah_attr ah, alt_ah;
	struct mpigo_cap cap;
	uint16_t pkey_index;
	uint8_t en_sqd_async_notify, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port, timeout, retry_cnt, rnr_retry;
	uint8_t sq_draining, pad;
};

// mpigo_event is an asynchronous event. context is the number that the object was created with; it
// is 0 for events of ports and devices.
struct mpigo_event {
	uint32_t type, port;
	uint64_t context;
};

// The hot calls go through the function table of the library's context. They do not call Go and
// keep no pointers. The posts return the number of accepted requests in the low 32 bits and an
// error number in the high 32 bits.
uint64_t mpigo_post_send(const struct mpigo_qp *q, const struct mpigo_send_wr *wrs, uint32_t n, const struct mpigo_ah *ahs, uint32_t nahs);
uint64_t mpigo_post_recv(const struct mpigo_qp *q, const struct mpigo_recv_wr *wrs, uint32_t n);
uint64_t mpigo_post_srq_recv(uint64_t srq, uint32_t max_sge, const struct mpigo_recv_wr *wrs, uint32_t n);
int mpigo_poll_cq(uint64_t cq, struct mpigo_wc *wcs, int n); // negative: the queue failed
int mpigo_req_notify_cq(uint64_t cq, int solicited_only);

// mpigo_load opens the library. On failure it returns 1 and writes the reason to text.
int mpigo_load(struct mpigo_lib *lib, const char *file, char *text, size_t size);

int mpigo_device_list(const struct mpigo_lib *lib, uint64_t *list, uint64_t *count);
const char *mpigo_device_name(const struct mpigo_lib *lib, uint64_t list, uint64_t i);
void mpigo_free_device_list(const struct mpigo_lib *lib, uint64_t list);
int mpigo_open(const struct mpigo_lib *lib, uint64_t list, uint64_t i, uint64_t *ctx, int *async_fd);
int mpigo_close(const struct mpigo_lib *lib, uint64_t ctx);
int mpigo_query_device(const struct mpigo_lib *lib, uint64_t ctx, struct mpigo_device_attr *a);
int mpigo_query_port(const struct mpigo_lib *lib, uint64_t ctx, uint32_t port, struct mpigo_port_attr *a);
int mpigo_query_pkey(const struct mpigo_lib *lib, uint64_t ctx, uint32_t port, int index, uint16_t *pkey);
int mpigo_query_gid(const struct mpigo_lib *lib, uint64_t ctx, uint32_t port, int index, uint8_t *gid);
// mpigo_gid_table returns the entries of all ports, at most max, and their count. It returns ENOSYS
// if the library does not have this call.
int mpigo_gid_table(const struct mpigo_lib *lib, uint64_t ctx, struct mpigo_gid *entries, uint32_t max, uint32_t *count);

int mpigo_alloc_pd(const struct mpigo_lib *lib, uint64_t ctx, uint64_t *pd);
int mpigo_dealloc_pd(const struct mpigo_lib *lib, uint64_t pd);
int mpigo_reg_mr(const struct mpigo_lib *lib, uint64_t pd, uint64_t addr, uint64_t length, uint32_t access, uint64_t *mr, uint32_t *lkey, uint32_t *rkey);
int mpigo_dereg_mr(const struct mpigo_lib *lib, uint64_t mr);
int mpigo_create_ah(const struct mpigo_lib *lib, uint64_t pd, const struct mpigo_ah_attr *attr, uint64_t *ah);
int mpigo_destroy_ah(const struct mpigo_lib *lib, uint64_t ah);
int mpigo_create_channel(const struct mpigo_lib *lib, uint64_t ctx, uint64_t *channel, int *fd);
int mpigo_destroy_channel(const struct mpigo_lib *lib, uint64_t channel);
int mpigo_create_cq(const struct mpigo_lib *lib, uint64_t ctx, int entries, uint64_t context, uint64_t channel, uint64_t *cq, int *granted);
int mpigo_destroy_cq(const struct mpigo_lib *lib, uint64_t cq);
int mpigo_create_srq(const struct mpigo_lib *lib, uint64_t pd, uint64_t context, uint32_t *max_wr, uint32_t *max_sge, uint64_t *srq);
int mpigo_srq_limit(const struct mpigo_lib *lib, uint64_t srq, uint32_t limit);
int mpigo_query_srq(const struct mpigo_lib *lib, uint64_t srq, uint32_t *max_wr, uint32_t *max_sge, uint32_t *limit);
int mpigo_destroy_srq(const struct mpigo_lib *lib, uint64_t srq);
int mpigo_create_qp(const struct mpigo_lib *lib, uint64_t pd, uint64_t context, int service, uint64_t send_cq, uint64_t recv_cq, uint64_t srq,
		    struct mpigo_cap *cap, int signal_all, uint64_t *qp, uint32_t *num);
int mpigo_modify_qp(const struct mpigo_lib *lib, uint64_t qp, const struct mpigo_qp_attr *attr, uint32_t mask);
int mpigo_query_qp(const struct mpigo_lib *lib, uint64_t qp, struct mpigo_qp_attr *attr);
int mpigo_destroy_qp(const struct mpigo_lib *lib, uint64_t qp);

// mpigo_async_event and mpigo_cq_event take an event. They return EAGAIN if there is none: their
// descriptors are non-blocking.
int mpigo_async_event(const struct mpigo_lib *lib, uint64_t ctx, struct mpigo_event *ev);
int mpigo_cq_event(const struct mpigo_lib *lib, uint64_t channel, uint64_t *context);
void mpigo_ack_qp(const struct mpigo_lib *lib, uint64_t qp);
void mpigo_ack_srq(const struct mpigo_lib *lib, uint64_t srq);
void mpigo_ack_cq(const struct mpigo_lib *lib, uint64_t cq);
void mpigo_ack_cq_events(const struct mpigo_lib *lib, uint64_t cq, uint32_t n);

#endif
