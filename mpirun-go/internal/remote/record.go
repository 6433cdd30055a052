package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"

	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// RecordDir is a directory in which ranks write records of a kind.
type RecordDir struct {
	Kind records.Kind
	Path string // absolute
}

// fetch is the transfer of a record from a host.
type fetch struct {
	in     *inbox
	answer chan fetched // has room for the one answer
}

// OwnDirs determines which directories of records are local to the host, because they contain no
// file with the name marker, and removes the records of earlier jobs from them. It is called once,
// before ranks start.
func (h *Host) OwnDirs(ctx context.Context, marker string, dirs []RecordDir) (own []RecordDir, err error) {
	r := recordDirs{marker: marker}
	for _, d := range dirs {
		r.dirs = append(r.dirs, recordDir{d.Kind, d.Path})
	}
	h.post(kindRecordDirs, 0, 0, r.encode())
	var o ownDirs
	select {
	case o = <-h.ownDirs:
	case <-h.lostChan:
		return nil, &HostError{Host: h.name, Lost: h.lost}
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	if o.problem != "" {
		return nil, errors.New(printable([]byte(o.problem)))
	}
	for i, dir := range dirs {
		if slices.Contains(o.own, i) {
			own = append(own, dir)
		}
	}
	return own, nil
}

// Fetch copies the record of a rank from the host. The error Is fs.ErrNotExist if there is none.
func (h *Host) Fetch(ctx context.Context, dir RecordDir, rank int, to io.Writer) error {
	x := &fetch{answer: make(chan fetched, 1)}
	h.mu.Lock()
	if h.lost != nil {
		h.mu.Unlock()
		return &HostError{Host: h.name, Lost: h.lost}
	}
	h.fetched++
	number := h.fetched
	x.in = openInbox(h.post, streamRecord, number)
	h.fetches[number] = x
	h.mu.Unlock()
	defer x.in.discard() // discard the rest of the stream
	h.post(kindFetch, 0, number, fetchRequest{recordDir{dir.Kind, dir.Path}, rank}.encode())
	var a fetched
	select {
	case a = <-x.answer:
	case <-h.lostChan:
		return &HostError{Host: h.name, Lost: h.lost}
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	switch {
	case a.problem != "":
		return errors.New(printable([]byte(a.problem)))
	case a.size < 0:
		return fs.ErrNotExist
	case a.size > dir.Kind.MaxBytes():
		return fmt.Errorf("%w: a record of %d bytes", ErrProtocol, a.size)
	}
	defer context.AfterFunc(ctx, x.in.discard)()
	n, err := io.Copy(to, io.LimitReader(x.in, a.size))
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err == nil && n < a.size:
		return io.ErrUnexpectedEOF
	}
	return err
}

// handleRecord handles a frame about records. The caller holds mu.
func (h *Host) handleRecord(f frame) error {
	if f.kind == kindOwnDirs {
		o, err := decodeOwnDirs(f.payload)
		if err != nil {
			return err
		}
		select {
		case h.ownDirs <- o:
			return nil
		default:
			return fmt.Errorf("%w: unexpected answer about directories", ErrProtocol)
		}
	}
	if f.rank == 0 || f.rank > h.fetched {
		return fmt.Errorf("%w: a frame of a record that was not asked for", ErrProtocol)
	}
	x := h.fetches[f.rank]
	switch {
	case x == nil:
		return fmt.Errorf("%w: a frame of a record after its end", ErrProtocol)
	case f.kind == kindEnd:
		delete(h.fetches, f.rank)
	}
	if f.kind == kindFetched {
		a, err := decodeFetched(f.payload)
		if err != nil {
			return err
		}
		select {
		case x.answer <- a:
			return nil
		default:
			return fmt.Errorf("%w: unexpected answer about a record", ErrProtocol)
		}
	}
	delivered, err := deliver(x.in, nil, f)
	if err == nil && !delivered {
		err = fmt.Errorf("%w: a frame of kind %d about a record", ErrProtocol, f.kind)
	}
	return err
}
