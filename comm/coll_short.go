package comm

import "github.com/mpigo/mpigo/comm/internal/coll"

// Short paths of blocking collectives. Each reports whether the call is over. If it is not, the
// caller makes it in the general way, which also finds the errors.

// enterShort takes the lock for a blocking collective that may take its short path: with short
// buffers, and without anything that only the general way does. typ is nil if the call has no
// slices of the user's.
func (c *Comm) enterShort(typ elemType, bytes int) bool {
	if bytes > coll.MostShort || c.isNull() || c.done != nil || c.job.eng.Calls != nil || c.job.check != nil ||
		typ != nil && !c.job.elems.isGood(wordOf(typ)) || !c.job.eng.TryLock() {
		return false
	}
	if c.isOpen() {
		return true
	}
	c.leave()
	return false
}

func (c *Comm) barrierShort() bool {
	if !c.enterShort(nil, 0) {
		return false
	}
	defer c.leave()
	return c.team.BarrierShort()
}

func (c *Comm) bcastShort(buf []byte, root int, typ elemType) bool {
	if !c.enterShort(typ, len(buf)) {
		return false
	}
	defer c.leave()
	return c.checkRoot(root) == nil && c.team.BcastShort(buf, root)
}

func (c *Comm) reduceShort(in, out []byte, op coll.Reduction, root int, typ elemType) bool {
	if !c.enterShort(typ, max(len(in), len(out))) {
		return false
	}
	defer c.leave()
	var err error
	if c.rank == root {
		err = checkReduction(in, out, op)
	} else {
		err, out = checkOp(op), nil
	}
	return err == nil && c.checkRoot(root) == nil && c.job.ownOps.has(op.Op) && c.team.ReduceShort(in, out, op, root)
}

func (c *Comm) allreduceShort(in, out []byte, op coll.Reduction, typ elemType) bool {
	if !c.enterShort(typ, len(out)) {
		return false
	}
	defer c.leave()
	return checkReduction(in, out, op) == nil && c.job.ownOps.has(op.Op) && c.team.AllreduceShort(in, out, op)
}

func (c *Comm) allgatherShort(in, out []byte, elem int, typ elemType) bool {
	if !c.enterShort(typ, len(out)/2) {
		return false
	}
	defer c.leave()
	return checkParts("out", in, out, elem, len(c.group)) == nil && c.team.AllgatherShort(in, out)
}

func (c *Comm) alltoallShort(in, out []byte, elem int, typ elemType) bool {
	if !c.enterShort(typ, len(out)) {
		return false
	}
	defer c.leave()
	return checkExchange(in, out, elem, len(c.group)) == nil && c.team.AlltoallShort(in, out)
}
