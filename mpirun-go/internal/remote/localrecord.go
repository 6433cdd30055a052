package remote

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// onRecordDirs determines which directories of records are local to the host, and removes the
// records of earlier jobs from them.
func (d *daemon) onRecordDirs(payload []byte) error {
	r, err := decodeRecordDirs(payload)
	if err != nil {
		return err
	}
	d.tasks.Go(func() { d.post(kindOwnDirs, 0, 0, r.prepare().encode()) })
	return nil
}

// prepare does the work of onRecordDirs. A directory with the marker is shared with the launcher,
// which has already removed the old records.
func (r recordDirs) prepare() (o ownDirs) {
	var errs []error
	for i, dir := range r.dirs {
		switch _, err := os.Lstat(filepath.Join(dir.path, r.marker)); {
		case err == nil:
		case errors.Is(err, fs.ErrNotExist):
			o.own = append(o.own, i)
			errs = append(errs, dir.kind.Clear(dir.path))
		default:
			errs = append(errs, err)
		}
	}
	if err := errors.Join(errs...); err != nil {
		o.problem = oneLine(err)
	}
	return o
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// onFetch begins to send a record to the launcher.
func (d *daemon) onFetch(f frame) error {
	r, err := decodeFetch(f.payload)
	if err != nil {
		return err
	}
	maps.DeleteFunc(d.fetches, func(_ uint32, out *outbox) bool { return out.isClosed() })
	if d.fetches[f.rank] != nil {
		return fmt.Errorf("%w: record %d is fetched twice", ErrProtocol, f.rank)
	}
	out := openOutbox(d.post, streamRecord, f.rank)
	d.fetches[f.rank] = out
	d.tasks.Go(func() {
		defer out.Close()
		file, size, err := r.open()
		switch {
		case errors.Is(err, fs.ErrNotExist):
			d.post(kindFetched, 0, f.rank, fetched{size: -1}.encode())
			return
		case err != nil:
			d.post(kindFetched, 0, f.rank, fetched{size: -1, problem: oneLine(err)}.encode())
			return
		}
		defer file.Close()
		d.post(kindFetched, 0, f.rank, fetched{size: size}.encode())
		_, _ = io.CopyN(out, file, size) // the launcher sees if it is too short
	})
	return nil
}

// open opens the record. Another user may have put a link in its place.
func (r fetchRequest) open() (*os.File, int64, error) {
	path := r.kind.Path(r.path, r.rank)
	file, info, err := records.Open(path, unix.O_NOFOLLOW)
	if err != nil {
		return nil, 0, err
	}
	if n, most := info.Size(), r.kind.MaxBytes(); n > most {
		_ = file.Close()
		return nil, 0, fmt.Errorf("%s has %d bytes: at most %d are copied", path, n, most)
	}
	return file, info.Size(), nil
}
