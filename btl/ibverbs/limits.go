package ibverbs

import (
	"errors"
	"fmt"

	"github.com/mpigo/mpigo/btl/ibverbs/verbs"
)

// Every work request has at most one scatter/gather element, which every device supports. Atomic
// operations are not used.

// minSendDepth is the least Config.SendDepth.
const minSendDepth = 4

// fit makes the depths of cfg fit the device, and checks its other limits. The error names the
// limit and the setting.
func (h *hca) fit(cfg *Config) (err error) {
	a := &h.attr
	if h.share, err = h.planShared(cfg); err != nil {
		return err
	}
	cfg.SendDepth = min(cfg.SendDepth, a.MaxQPWR-controlDepth-1)
	receives := sharedChunk
	if h.share.on() {
		cfg.SendDepth = min(cfg.SendDepth, a.MaxCQE-h.share.capacity-ownEntries(0))
	} else {
		h.fitOwn(cfg)
		receives = cfg.receives() + ownBuffers
	}
	h.udSendDepth = min(udSendDepth, a.MaxQPWR, a.MaxCQE/2)
	h.udRecvDepth = min(udRecvDepth, a.MaxQPWR, a.MaxCQE-h.udSendDepth)
	const devices = "name another device in ibverbs.devices"
	switch message := headBytes + cfg.FragBytes; {
	case a.MaxQP < 2:
		return tooLittle("max_qp", a.MaxQP, "a rank needs 2 or more queue pairs; "+devices)
	case cfg.SendDepth < minSendDepth || cfg.RecvDepth < minRecvDepth:
		return tooLittle(fmt.Sprintf("max_qp_wr is %d, max_cqe", a.MaxQPWR), a.MaxCQE,
			fmt.Sprintf("too little for ibverbs.send.depth %d and ibverbs.recv.depth %d, the minimum; %s", minSendDepth, minRecvDepth, devices))
	case uint64(message) > uint64(h.port.MaxMsg):
		return tooLittle("max_msg_sz", h.port.MaxMsg, fmt.Sprintf("ibverbs.frag.bytes needs %d", message))
	}
	if need := slabBytes(max(bounceBuffers+1, receives), headBytes+cfg.FragBytes); a.MaxMRBytes > 0 && uint64(need) > a.MaxMRBytes {
		return tooLittle("max_mr_size", a.MaxMRBytes, fmt.Sprintf("buffers of ibverbs.frag.bytes need %d; reduce ibverbs.frag.bytes or ibverbs.recv.depth", need))
	}
	return nil
}

// fitOwn makes the depths fit a device on which each queue pair has receives of its own.
func (h *hca) fitOwn(cfg *Config) {
	a := &h.attr
	cfg.RecvDepth = min(cfg.RecvDepth, a.MaxQPWR-controlDepth)
	if most := a.MaxCQE - (cfg.queueEntries() - cfg.SendDepth - cfg.RecvDepth); cfg.SendDepth+cfg.RecvDepth > most {
		cfg.RecvDepth = max(most*cfg.RecvDepth/(cfg.SendDepth+cfg.RecvDepth), minRecvDepth)
		cfg.SendDepth = most - cfg.RecvDepth
	}
}

// tooLittle is the error of a limit of the device. openHCA adds the device's name.
func tooLittle(limit string, have any, need string) error {
	return fmt.Errorf("%w: %s is %v, %s", errLimit, limit, have, need)
}

var errLimit = errors.New("limit of the device")

// reads returns how many reads of a peer this rank's device answers at a time, and how many it may
// have outstanding. 0 means that there are no reads.
func (h *hca) reads() (answers, asks int) {
	return min(h.attr.MaxQPRdAtom, maxReads), min(h.attr.MaxQPInitRdAtom, maxReads)
}

// noQueuePair adds a hint to the error of a queue pair that could not be made, if the job may have
// more peers than the device has queue pairs.
func (h *hca) noQueuePair(cfg *Config, err error) error {
	if !errors.Is(err, verbs.ErrNoMemory) || cfg.Size <= h.attr.MaxQP {
		return err
	}
	return fmt.Errorf("%w: max_qp of device %s is %d, and a job of %d ranks may need as many; name more devices in ibverbs.devices to share them",
		err, cfg.Device, h.attr.MaxQP, cfg.Size)
}
