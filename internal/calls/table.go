package calls

import "strings"

// ID is the number of a call: its place in the table of calls. What a call is, and how it is named,
// is asked of its number. Files and reports have names, because numbers are those of one build. In
// collectives, ranks compare numbers, so all ranks of a job need the same version.
type ID uint8

// The calls that the code names. The forms of a collective have numbers too, which In returns.
const (
	None ID = iota // no call, or one of which only a name is known, which is not in the table

	// Point-to-point
	Send
	Ssend
	Bsend
	Rsend
	Isend
	Issend
	Ibsend
	Irsend
	SendInit
	SsendInit
	BsendInit
	RsendInit
	SendValue
	Recv
	Irecv
	RecvInit
	RecvValue
	Sendrecv
	SendrecvReplace
	Isendrecv
	Probe
	Iprobe
	Mprobe
	Improbe
	Mrecv
	Imrecv

	// Requests
	Wait
	WaitAll
	WaitAny
	WaitSome
	Completed
	Test
	TestAll
	TestAny
	TestSome
	Start
	StartAll
	Cancel
	FreeRequest
	GetStatus
	GetCount

	// Collectives
	Barrier
	Bcast
	Reduce
	Allreduce
	Scan
	Exscan
	ReduceScatter
	ReduceScatterBlock
	Gather
	Gatherv
	Scatter
	Scatterv
	Allgather
	Allgatherv
	Alltoall
	Alltoallv
	NeighborAllgather
	NeighborAllgatherv
	NeighborAlltoall
	NeighborAlltoallv

	// Communicators and groups
	Dup
	Idup
	Split
	SplitHost
	SplitBy
	Create
	CreateGroup
	Cart
	CartSub
	Graph
	DistGraph
	FreeComm
	CommRank
	CommSize
	CommGroup
	CommCompare
	CommName
	SetName
	SetAttr
	GetAttr
	DelAttr
	NewAttrKey
	CartCoords
	CartRank
	CartShift
	CartDims
	Dims
	Neighbors
	GroupRank
	GroupRanks
	GroupSize
	GroupCompare
	GroupTranslate
	GroupUnion
	GroupIntersection
	GroupDifference
	GroupIncl
	GroupExcl

	// The rest
	Init
	Finalize
	Abort
	Wtime
	Alloc
	FreeAlloc
	ReduceLocal
	CutRail
	MendRail

	named // the number of constants
)

// Form is how a call does its operation.
type Form uint8

const (
	// Blocking calls do the whole operation.
	Blocking Form = iota
	// Nonblocking calls begin it. A later call observes its end.
	Nonblocking
	// Persistent calls make a request, which does the operation each time that it is started.
	Persistent
	// Started is an operation that a persistent collective does.
	Started

	forms
)

// Flow says which ranks need which other ones in a collective.
type Flow uint8

const (
	NoFlow        Flow = iota // it is no collective of a communicator
	Meets                     // all need all, and nothing else
	FromRoot                  // all need the root
	ToRoot                    // the root needs all
	AllToAll                  // all need all
	FromLower                 // each needs those before it
	FromNeighbors             // each needs its neighbours in the topology
)

// row is the line of a call in the table.
type row struct {
	id ID
	// In Go, with the type of a method. Package comm exports it, or package request.
	name string
	mpi  string // in MPI; "" if MPI has no such call
	op   string // in errors, records and reports; "" if it is in none
	form Form
	flow Flow
	what trait
}

// trait is what else a call is.
type trait uint8

const (
	sends    trait = 1 << iota // it sends a message of the user's, or its request does
	receives                   // it receives or finds one, or its request does
	starts                     // it starts operations of requests
	needsAll                   // see ID.NeedsAll
	combines                   // its arguments have an operation
	counts                     // each part has a length of its own
	allForms                   // it has a nonblocking and a persistent form
)

// rows has the calls that have constants, in that order. Never written.
var rows = [named]row{
	{None, "", "", "", Blocking, NoFlow, 0},

	{Send, "Send", "MPI_Send", "send", Blocking, NoFlow, sends},
	{Ssend, "Ssend", "MPI_Ssend", "ssend", Blocking, NoFlow, sends},
	{Bsend, "Bsend", "MPI_Bsend", "bsend", Blocking, NoFlow, sends},
	{Rsend, "Rsend", "MPI_Rsend", "rsend", Blocking, NoFlow, sends},
	{Isend, "Isend", "MPI_Isend", "isend", Nonblocking, NoFlow, sends},
	{Issend, "Issend", "MPI_Issend", "issend", Nonblocking, NoFlow, sends},
	{Ibsend, "Ibsend", "MPI_Ibsend", "ibsend", Nonblocking, NoFlow, sends},
	{Irsend, "Irsend", "MPI_Irsend", "irsend", Nonblocking, NoFlow, sends},
	{SendInit, "SendInit", "MPI_Send_init", "send init", Persistent, NoFlow, sends},
	{SsendInit, "SsendInit", "MPI_Ssend_init", "ssend init", Persistent, NoFlow, sends},
	{BsendInit, "BsendInit", "MPI_Bsend_init", "bsend init", Persistent, NoFlow, sends},
	{RsendInit, "RsendInit", "MPI_Rsend_init", "rsend init", Persistent, NoFlow, sends},
	{SendValue, "SendValue", "", "send value", Blocking, NoFlow, sends},
	{Recv, "Recv", "MPI_Recv", "recv", Blocking, NoFlow, receives},
	{Irecv, "Irecv", "MPI_Irecv", "irecv", Nonblocking, NoFlow, receives},
	{RecvInit, "RecvInit", "MPI_Recv_init", "recv init", Persistent, NoFlow, receives},
	{RecvValue, "RecvValue", "", "recv value", Blocking, NoFlow, receives},
	{Sendrecv, "Sendrecv", "MPI_Sendrecv", "sendrecv", Blocking, NoFlow, sends | receives},
	{SendrecvReplace, "SendrecvReplace", "MPI_Sendrecv_replace", "sendrecv replace", Blocking, NoFlow, sends | receives},
	{Isendrecv, "Isendrecv", "MPI_Isendrecv", "isendrecv", Nonblocking, NoFlow, sends | receives},
	{Probe, "Comm.Probe", "MPI_Probe", "probe", Blocking, NoFlow, receives},
	{Iprobe, "Comm.Iprobe", "MPI_Iprobe", "iprobe", Blocking, NoFlow, receives},
	{Mprobe, "Comm.Mprobe", "MPI_Mprobe", "mprobe", Blocking, NoFlow, receives},
	{Improbe, "Comm.Improbe", "MPI_Improbe", "improbe", Blocking, NoFlow, receives},
	{Mrecv, "Mrecv", "MPI_Mrecv", "mrecv", Blocking, NoFlow, receives},
	{Imrecv, "Imrecv", "MPI_Imrecv", "imrecv", Nonblocking, NoFlow, receives},

	{Wait, "Request.Wait", "MPI_Wait", "wait", Blocking, NoFlow, 0},
	{WaitAll, "WaitAll", "MPI_Waitall", "wait all", Blocking, NoFlow, 0},
	{WaitAny, "WaitAny", "MPI_Waitany", "wait any", Blocking, NoFlow, 0},
	{WaitSome, "WaitSome", "MPI_Waitsome", "wait some", Blocking, NoFlow, 0},
	{Completed, "Completed", "", "completed", Blocking, NoFlow, 0},
	{Test, "Request.Test", "MPI_Test", "test", Blocking, NoFlow, 0},
	{TestAll, "TestAll", "MPI_Testall", "test all", Blocking, NoFlow, 0},
	{TestAny, "TestAny", "MPI_Testany", "test any", Blocking, NoFlow, 0},
	{TestSome, "TestSome", "MPI_Testsome", "test some", Blocking, NoFlow, 0},
	{Start, "Request.Start", "MPI_Start", "start", Blocking, NoFlow, starts},
	{StartAll, "StartAll", "MPI_Startall", "start all", Blocking, NoFlow, starts},
	{Cancel, "Request.Cancel", "MPI_Cancel", "cancel", Blocking, NoFlow, 0},
	{FreeRequest, "Request.Free", "MPI_Request_free", "free", Blocking, NoFlow, 0},
	{GetStatus, "Request.GetStatus", "MPI_Request_get_status", "", Blocking, NoFlow, 0},
	{GetCount, "Count", "MPI_Get_count", "", Blocking, NoFlow, 0},

	{Barrier, "Comm.Barrier", "MPI_Barrier", "barrier", Blocking, Meets, needsAll | allForms},
	{Bcast, "Bcast", "MPI_Bcast", "bcast", Blocking, FromRoot, allForms},
	{Reduce, "Reduce", "MPI_Reduce", "reduce", Blocking, ToRoot, combines | allForms},
	{Allreduce, "Allreduce", "MPI_Allreduce", "allreduce", Blocking, AllToAll, needsAll | combines | allForms},
	{Scan, "Scan", "MPI_Scan", "scan", Blocking, FromLower, combines | allForms},
	{Exscan, "Exscan", "MPI_Exscan", "exscan", Blocking, FromLower, combines | allForms},
	{ReduceScatter, "ReduceScatter", "MPI_Reduce_scatter", "reducescatter", Blocking, AllToAll, combines | counts | allForms},
	{ReduceScatterBlock, "ReduceScatterBlock", "MPI_Reduce_scatter_block", "reducescatterblock", Blocking, AllToAll, needsAll | combines | allForms},
	{Gather, "Gather", "MPI_Gather", "gather", Blocking, ToRoot, allForms},
	{Gatherv, "Gatherv", "MPI_Gatherv", "gatherv", Blocking, ToRoot, counts | allForms},
	{Scatter, "Scatter", "MPI_Scatter", "scatter", Blocking, FromRoot, allForms},
	{Scatterv, "Scatterv", "MPI_Scatterv", "scatterv", Blocking, FromRoot, counts | allForms},
	{Allgather, "Allgather", "MPI_Allgather", "allgather", Blocking, AllToAll, needsAll | allForms},
	{Allgatherv, "Allgatherv", "MPI_Allgatherv", "allgatherv", Blocking, AllToAll, counts | allForms},
	{Alltoall, "Alltoall", "MPI_Alltoall", "alltoall", Blocking, AllToAll, needsAll | allForms},
	{Alltoallv, "Alltoallv", "MPI_Alltoallv", "alltoallv", Blocking, AllToAll, counts | allForms},
	{NeighborAllgather, "NeighborAllgather", "MPI_Neighbor_allgather", "neighborallgather", Blocking, FromNeighbors, allForms},
	{NeighborAllgatherv, "NeighborAllgatherv", "MPI_Neighbor_allgatherv", "neighborallgatherv", Blocking, FromNeighbors, counts | allForms},
	{NeighborAlltoall, "NeighborAlltoall", "MPI_Neighbor_alltoall", "neighboralltoall", Blocking, FromNeighbors, allForms},
	{NeighborAlltoallv, "NeighborAlltoallv", "MPI_Neighbor_alltoallv", "neighboralltoallv", Blocking, FromNeighbors, counts | allForms},

	{Dup, "Comm.Dup", "MPI_Comm_dup", "dup", Blocking, AllToAll, needsAll},
	{Idup, "Comm.Idup", "MPI_Comm_idup", "idup", Nonblocking, AllToAll, needsAll},
	{Split, "Comm.Split", "MPI_Comm_split", "split", Blocking, AllToAll, needsAll},
	{SplitHost, "Comm.SplitHost", "", "split host", Blocking, AllToAll, needsAll},
	{SplitBy, "Comm.SplitBy", "MPI_Comm_split_type", "split by", Blocking, AllToAll, needsAll},
	{Create, "Comm.Create", "MPI_Comm_create", "create", Blocking, AllToAll, needsAll},
	{CreateGroup, "Comm.CreateGroup", "MPI_Comm_create_group", "create group", Blocking, AllToAll, needsAll},
	{Cart, "Comm.Cart", "MPI_Cart_create", "cart", Blocking, AllToAll, needsAll},
	{CartSub, "Comm.CartSub", "MPI_Cart_sub", "cart sub", Blocking, AllToAll, needsAll},
	{Graph, "Comm.Graph", "MPI_Dist_graph_create_adjacent", "graph", Blocking, AllToAll, needsAll},
	// It consists of several collectives, and one of them does not need all.
	{DistGraph, "Comm.DistGraph", "MPI_Dist_graph_create", "dist graph", Blocking, AllToAll, 0},
	{FreeComm, "Comm.Free", "MPI_Comm_free", "free comm", Blocking, NoFlow, 0},
	{CommRank, "Comm.Rank", "MPI_Comm_rank", "", Blocking, NoFlow, 0},
	{CommSize, "Comm.Size", "MPI_Comm_size", "", Blocking, NoFlow, 0},
	{CommGroup, "Comm.Group", "MPI_Comm_group", "", Blocking, NoFlow, 0},
	{CommCompare, "Comm.Compare", "MPI_Comm_compare", "", Blocking, NoFlow, 0},
	{CommName, "Comm.Name", "MPI_Comm_get_name", "", Blocking, NoFlow, 0},
	{SetName, "Comm.SetName", "MPI_Comm_set_name", "", Blocking, NoFlow, 0},
	{SetAttr, "SetAttr", "MPI_Comm_set_attr", "set attr", Blocking, NoFlow, 0},
	{GetAttr, "GetAttr", "MPI_Comm_get_attr", "", Blocking, NoFlow, 0},
	{DelAttr, "DelAttr", "MPI_Comm_delete_attr", "del attr", Blocking, NoFlow, 0},
	{NewAttrKey, "NewAttrKey", "MPI_Comm_create_keyval", "", Blocking, NoFlow, 0},
	{CartCoords, "Comm.CartCoords", "MPI_Cart_coords", "cart coords", Blocking, NoFlow, 0},
	{CartRank, "Comm.CartRank", "MPI_Cart_rank", "cart rank", Blocking, NoFlow, 0},
	{CartShift, "Comm.CartShift", "MPI_Cart_shift", "cart shift", Blocking, NoFlow, 0},
	{CartDims, "Comm.CartDims", "MPI_Cart_get", "", Blocking, NoFlow, 0},
	{Dims, "Dims", "MPI_Dims_create", "dims", Blocking, NoFlow, 0},
	{Neighbors, "Comm.Neighbors", "MPI_Dist_graph_neighbors", "", Blocking, NoFlow, 0},
	{GroupRank, "Group.Rank", "MPI_Group_rank", "", Blocking, NoFlow, 0},
	{GroupRanks, "Group.Ranks", "", "", Blocking, NoFlow, 0},
	{GroupSize, "Group.Size", "MPI_Group_size", "", Blocking, NoFlow, 0},
	{GroupCompare, "Group.Compare", "MPI_Group_compare", "", Blocking, NoFlow, 0},
	{GroupTranslate, "Group.Translate", "MPI_Group_translate_ranks", "", Blocking, NoFlow, 0},
	{GroupUnion, "Group.Union", "MPI_Group_union", "", Blocking, NoFlow, 0},
	{GroupIntersection, "Group.Intersection", "MPI_Group_intersection", "", Blocking, NoFlow, 0},
	{GroupDifference, "Group.Difference", "MPI_Group_difference", "", Blocking, NoFlow, 0},
	{GroupIncl, "Group.Incl", "MPI_Group_incl", "incl", Blocking, NoFlow, 0},
	{GroupExcl, "Group.Excl", "MPI_Group_excl", "excl", Blocking, NoFlow, 0},

	{Init, "Init", "MPI_Init", "init", Blocking, NoFlow, 0},
	{Finalize, "Comm.Finalize", "MPI_Finalize", "finalize", Blocking, NoFlow, 0},
	{Abort, "Comm.Abort", "MPI_Abort", "", Blocking, NoFlow, 0},
	{Wtime, "Comm.Wtime", "MPI_Wtime", "", Blocking, NoFlow, 0},
	{Alloc, "Alloc", "MPI_Alloc_mem", "alloc", Blocking, NoFlow, 0},
	{FreeAlloc, "FreeAlloc", "MPI_Free_mem", "free alloc", Blocking, NoFlow, 0},
	{ReduceLocal, "ReduceLocal", "MPI_Reduce_local", "reduce local", Blocking, NoFlow, 0},
	{CutRail, "Comm.CutRail", "", "cut rail", Blocking, NoFlow, 0},
	{MendRail, "Comm.MendRail", "", "mend rail", Blocking, NoFlow, 0},
}

// maxCalls bounds the table: each ID is a place in it.
const maxCalls = 1 << 8

// entry is a place of the table.
type entry struct {
	row
	goName string    // without the type
	base   ID        // the call itself, of a collective its blocking form
	in     [forms]ID // of the base: its forms, itself where there is none
}

// table has a place for every call: that of its number. Never written after its making.
var table = makeTable()

func makeTable() (t [maxCalls]entry) {
	next := named
	add := func(id, base ID, r row) {
		r.id = id
		c := entry{row: r, goName: r.name[strings.LastIndexByte(r.name, '.')+1:], base: base}
		for f := range c.in {
			c.in[f] = id
		}
		t[id] = c
		t[base].in[r.form] = id
	}
	for id, r := range rows {
		add(ID(id), ID(id), r)
		if r.what&allForms == 0 {
			continue
		}
		on, name := "", r.name
		if dot := strings.LastIndexByte(name, '.'); dot >= 0 {
			on, name = name[:dot+1], name[dot+1:]
		}
		mpi := strings.TrimPrefix(r.mpi, "MPI_")
		for f := Nonblocking; f < forms; f++ {
			made := r
			switch made.form = f; f {
			case Nonblocking:
				made.name, made.mpi, made.op = on+"I"+lowerFirst(name), "MPI_I"+lowerFirst(mpi), "i"+r.op
			case Persistent:
				made.name, made.mpi, made.op = on+name+"Init", r.mpi+"_init", r.op+" init"
			case Started:
				made.name, made.mpi, made.op = "", "", "persistent "+r.op
			}
			add(next, ID(id), made)
			next++
		}
	}
	t[Dup].in[Nonblocking], t[Idup].base = Idup, Dup
	return t
}

func lowerFirst(name string) string { return strings.ToLower(name[:1]) + name[1:] }

// Named returns the call with a name in errors, records and reports; None if there is none.
func Named(op string) ID {
	for id := range table {
		if op != "" && table[id].op == op {
			return ID(id)
		}
	}
	return None
}

// GoName returns the name in Go of the call with a name in errors, records and reports. It returns
// the name itself if the table has no such call, as of a file of another version.
func GoName(op string) string {
	if name := Named(op).Go(); name != "" {
		return name
	}
	return op
}

// All returns all calls but None.
func All() (list []ID) {
	for id := range table {
		if table[id].id != None {
			list = append(list, ID(id))
		}
	}
	return list
}

// String is the name of the call in errors, records and reports; "" if it is in none.
func (c ID) String() string { return table[c].op }

// Go is the name of the call in Go, without package or type; "" if it is no function.
func (c ID) Go() string { return table[c].goName }

// Symbol is the name of the call in Go, with the type of a method but without the package.
func (c ID) Symbol() string { return table[c].name }

// MPI is the name of the call in MPI, "" if MPI has no such call.
func (c ID) MPI() string { return table[c].mpi }

// Form is how the call does its operation.
func (c ID) Form() Form { return table[c].form }

// In is a collective in another form. If it has no such form, and for any other call, it is the
// blocking form of the collective, or the call itself.
func (c ID) In(f Form) ID { return table[table[c].base].in[f] }

// Base is the blocking form of a collective, and any other call itself.
func (c ID) Base() ID { return table[c].base }

// Flow says which ranks need which other ones, of a collective.
func (c ID) Flow() Flow { return table[c].flow }

// IsCollective reports whether the call is a collective of a communicator. So Init and Finalize are
// none.
func (c ID) IsCollective() bool { return table[c].flow != NoFlow }

// IsRooted reports whether the call is a collective with a root.
func (c ID) IsRooted() bool { return c.Flow() == FromRoot || c.Flow() == ToRoot }

// HasAllForms reports whether the call is a collective with all forms.
func (c ID) HasAllForms() bool { return table[c].what&allForms != 0 }

// Sends reports whether the call, or its request, sends a message of the user's.
func (c ID) Sends() bool { return table[c].what&sends != 0 }

// SendsAtOnce reports whether the call itself sends a message of the user's.
func (c ID) SendsAtOnce() bool { return c.Sends() && c.Form() != Persistent }

// Receives reports whether the call, or its request, receives or finds a message of the user's.
func (c ID) Receives() bool { return table[c].what&receives != 0 }

// Begins reports whether the call begins an operation of the user's that a later call ends.
func (c ID) Begins() bool { return table[c].form == Nonblocking || table[c].what&starts != 0 }

// NeedsAll reports whether the call is over at no rank before all ranks have called it, unless it
// has slices that are empty.
func (c ID) NeedsAll() bool { return table[c].what&needsAll != 0 }

// Combines reports whether the call has an operation.
func (c ID) Combines() bool { return table[c].what&combines != 0 }

// HasCounts reports whether each part has a length of its own.
func (c ID) HasCounts() bool { return table[c].what&counts != 0 }
