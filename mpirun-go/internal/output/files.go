package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/mpigo/mpigo/internal/atomicfile"
)

// Files holds the two output files of one rank in --output-dir.
type Files struct {
	Stdout, Stderr *os.File
}

// Close closes both files.
func (f Files) Close() error {
	return errors.Join(f.Stdout.Close(), f.Stderr.Close())
}

// OpenFiles creates dir, and in it empty files rank.N.stdout and rank.N.stderr for each of size
// ranks, which replace existing ones. On error it closes all files.
func OpenFiles(dir string, size int) ([]Files, error) {
	files := make([]Files, size)
	err := os.MkdirAll(dir, 0o777)
	for rank := 0; rank < size && err == nil; rank++ {
		err = files[rank].open(filepath.Join(dir, fmt.Sprintf("rank.%d", rank)))
	}
	if err != nil {
		for _, f := range files {
			_ = f.Close() // also of files that are nil
		}
		return nil, fmt.Errorf("output directory: %w", err)
	}
	return files, nil
}

func (f *Files) open(prefix string) (err error) {
	if f.Stdout, err = atomicfile.Create(prefix+".stdout", 0o666); err == nil {
		f.Stderr, err = atomicfile.Create(prefix+".stderr", 0o666)
	}
	return err
}
