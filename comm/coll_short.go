package comm

import "github.com/mpigo/mpigo/comm/internal/coll"

// Short paths of blocking collectives. Each reports whether it has completed the call. If not, the
// call continues on the general path, which also finds the errors. The lock is kept in between, so
// that no other goroutine's call can come between the two.

// mayBeShort reports whether nothing requires the general path. Lock held.
func (c *Comm) mayBeShort() bool {
	return c.done == nil && c.job.eng.Calls == nil && c.job.check == nil
}

// isShort calls short. It releases the lock if short panics.
func (c *Comm) isShort(short func() bool) (isOver bool) {
	returned := false
	defer func() {
		if !returned {
			c.leave()
		}
	}()
	isOver = short()
	returned = true
	return isOver
}

func (c *Comm) bcastShort(buf []byte, root int) bool {
	return len(buf) <= coll.MostCopied && c.checkRoot(root) == nil && c.team.BcastShort(buf, root)
}

func (c *Comm) reduceShort(in, out []byte, op coll.Reduction, root int) bool {
	var err error
	if c.rank == root {
		err = checkReduction(in, out, op)
	} else {
		err, out = checkOp(op), nil
	}
	return max(len(in), len(out)) <= coll.MostCombined && err == nil && c.checkRoot(root) == nil &&
		c.job.ownOps.has(op.Op) && c.team.ReduceShort(in, out, op, root)
}

func (c *Comm) allreduceShort(in, out []byte, op coll.Reduction) bool {
	return len(out) <= coll.MostCombined && checkReduction(in, out, op) == nil &&
		c.job.ownOps.has(op.Op) && c.team.AllreduceShort(in, out, op)
}

func (c *Comm) allgatherShort(in, out []byte, elem int) bool {
	return len(out) <= len(c.group)*coll.MostCopied && checkParts("out", in, out, elem, len(c.group)) == nil && c.team.AllgatherShort(in, out)
}

func (c *Comm) alltoallShort(in, out []byte, elem int) bool {
	return len(out) <= coll.MostCopied && checkExchange(in, out, elem, len(c.group)) == nil && c.team.AlltoallShort(in, out)
}
