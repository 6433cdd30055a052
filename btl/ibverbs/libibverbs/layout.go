//go:build cgo && linux && !386 && !arm && !mips && !mipsle

package libibverbs

/*
#include "shim.h"
*/
import "C"

import (
	"unsafe"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// These declarations compile only if the types that are passed to C in bulk have the same layout in
// Go and in C.
var (
	// verbs.SGE
	_ [unsafe.Sizeof(verbs.SGE{})]byte          = [unsafe.Sizeof(C.struct_mpigo_sge{})]byte{}
	_ [unsafe.Offsetof(verbs.SGE{}.Addr)]byte   = [unsafe.Offsetof(C.struct_mpigo_sge{}.addr)]byte{}
	_ [unsafe.Offsetof(verbs.SGE{}.Length)]byte = [unsafe.Offsetof(C.struct_mpigo_sge{}.length)]byte{}
	_ [unsafe.Offsetof(verbs.SGE{}.LKey)]byte   = [unsafe.Offsetof(C.struct_mpigo_sge{}.lkey)]byte{}
	// verbs.SendWR
	_ [unsafe.Sizeof(verbs.SendWR{})]byte              = [unsafe.Sizeof(C.struct_mpigo_send_wr{})]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.ID)]byte         = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.id)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.Opcode)]byte     = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.opcode)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.Flags)]byte      = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.flags)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.NumSGE)]byte     = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.num_sge)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.Imm)]byte        = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.imm)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.RemoteAddr)]byte = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.remote_addr)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.RKey)]byte       = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.rkey)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.RemoteQPN)]byte  = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.remote_qpn)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.RemoteQKey)]byte = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.remote_qkey)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.AH)]byte         = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.ah)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.CompareAdd)]byte = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.compare_add)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.Swap)]byte       = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.swap)]byte{}
	_ [unsafe.Offsetof(verbs.SendWR{}.SGE)]byte        = [unsafe.Offsetof(C.struct_mpigo_send_wr{}.sge)]byte{}
	// verbs.RecvWR
	_ [unsafe.Sizeof(verbs.RecvWR{})]byte          = [unsafe.Sizeof(C.struct_mpigo_recv_wr{})]byte{}
	_ [unsafe.Offsetof(verbs.RecvWR{}.ID)]byte     = [unsafe.Offsetof(C.struct_mpigo_recv_wr{}.id)]byte{}
	_ [unsafe.Offsetof(verbs.RecvWR{}.NumSGE)]byte = [unsafe.Offsetof(C.struct_mpigo_recv_wr{}.num_sge)]byte{}
	_ [unsafe.Offsetof(verbs.RecvWR{}.SGE)]byte    = [unsafe.Offsetof(C.struct_mpigo_recv_wr{}.sge)]byte{}
	// verbs.WC
	_ [unsafe.Sizeof(verbs.WC{})]byte                = [unsafe.Sizeof(C.struct_mpigo_wc{})]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.ID)]byte           = [unsafe.Offsetof(C.struct_mpigo_wc{}.id)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.Status)]byte       = [unsafe.Offsetof(C.struct_mpigo_wc{}.status)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.Opcode)]byte       = [unsafe.Offsetof(C.struct_mpigo_wc{}.opcode)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.VendorErr)]byte    = [unsafe.Offsetof(C.struct_mpigo_wc{}.vendor_err)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.ByteLen)]byte      = [unsafe.Offsetof(C.struct_mpigo_wc{}.byte_len)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.Imm)]byte          = [unsafe.Offsetof(C.struct_mpigo_wc{}.imm)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.QPNum)]byte        = [unsafe.Offsetof(C.struct_mpigo_wc{}.qp_num)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.SrcQP)]byte        = [unsafe.Offsetof(C.struct_mpigo_wc{}.src_qp)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.Flags)]byte        = [unsafe.Offsetof(C.struct_mpigo_wc{}.flags)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.PKeyIndex)]byte    = [unsafe.Offsetof(C.struct_mpigo_wc{}.pkey_index)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.SLID)]byte         = [unsafe.Offsetof(C.struct_mpigo_wc{}.slid)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.SL)]byte           = [unsafe.Offsetof(C.struct_mpigo_wc{}.sl)]byte{}
	_ [unsafe.Offsetof(verbs.WC{}.DLIDPathBits)]byte = [unsafe.Offsetof(C.struct_mpigo_wc{}.dlid_path_bits)]byte{}
	_ [verbs.MaxSGE]byte                             = [C.MPIGO_MAX_SGE]byte{}
)
