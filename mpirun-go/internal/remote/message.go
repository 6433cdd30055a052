package remote

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/mpigo/mpigo/mpirun-go/internal/procs"
	"github.com/mpigo/mpigo/mpirun-go/internal/records"
)

// payloadReader decodes the values of a payload in order. After the first error, err is set and all
// values are zero.
type payloadReader struct {
	rest []byte
	err  error
}

func (f *payloadReader) fail(problem string) {
	if f.err == nil {
		f.err = fmt.Errorf("%w: %s", ErrProtocol, problem)
	}
	f.rest = nil
}

func (f *payloadReader) number() uint64 {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 {
		f.fail("a number is missing")
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

// upTo returns a number, which must not exceed limit.
func (f *payloadReader) upTo(limit int) int {
	v := f.number()
	if v > uint64(limit) {
		f.fail("a number is too large")
		return 0
	}
	return int(v)
}

func (f *payloadReader) text() string {
	n := f.number()
	if n > uint64(len(f.rest)) {
		f.fail("a text is cut off")
		return ""
	}
	text := string(f.rest[:n])
	f.rest = f.rest[n:]
	return text
}

// readList returns a list whose elements element decodes. They take at least one byte each.
func readList[T any](f *payloadReader, element func() T) []T {
	n := f.number()
	if n > uint64(len(f.rest)) {
		f.fail("a list is cut off")
		return nil
	}
	var list []T
	for range n {
		list = append(list, element())
	}
	return list
}

func (f *payloadReader) texts() []string { return readList(f, f.text) }

func (f *payloadReader) numbers(limit int) []int {
	return readList(f, func() int { return f.upTo(limit) })
}

// end returns the error of decoding. Bytes left over are an error too.
func (f *payloadReader) end() error {
	if f.err == nil && len(f.rest) > 0 {
		f.fail("bytes are left over")
	}
	return f.err
}

func appendNumber(b []byte, v int) []byte { return binary.AppendUvarint(b, uint64(v)) }

func appendText(b []byte, s string) []byte { return append(appendNumber(b, len(s)), s...) }

func appendTexts(b []byte, list []string) []byte {
	b = appendNumber(b, len(list))
	for _, s := range list {
		b = appendText(b, s)
	}
	return b
}

func appendNumbers(b []byte, list []int) []byte {
	b = appendNumber(b, len(list))
	for _, v := range list {
		b = appendNumber(b, v)
	}
	return b
}

// Bounds of numbers in messages.
const (
	maxHosts      = 1 << 16
	maxCPUNumber  = 1 << 20
	maxTimerSlack = time.Second
	maxInt        = 1<<31 - 1
)

// hello is the payload of kindHello, a daemon's first frame.
type hello struct {
	secret, nonce string
	job, name     string // the job's ID, and the host's name as the user wrote it
}

func (h hello) encode() []byte {
	return appendText(appendText(appendText(appendText(nil, h.secret), h.nonce), h.job), h.name)
}

func decodeHello(p []byte) (hello, error) {
	f := payloadReader{rest: p}
	h := hello{secret: f.text(), nonce: f.text(), job: f.text(), name: f.text()}
	return h, f.end()
}

// welcome is the payload of kindWelcome, a daemon's answer to its hello.
type welcome struct {
	proof []byte
	cores [][]int // like slots.Machine.Cores
	quota int     // like slots.Machine.Quota
}

func (w welcome) encode() []byte {
	b := appendNumber(appendNumber(appendText(nil, string(w.proof)), w.quota), len(w.cores))
	for _, core := range w.cores {
		b = appendNumbers(b, core)
	}
	return b
}

func decodeWelcome(p []byte) (welcome, error) {
	f := payloadReader{rest: p}
	w := welcome{proof: []byte(f.text()), quota: f.upTo(maxCPUNumber)}
	w.cores = readList(&f, func() []int { return f.numbers(maxCPUNumber) })
	return w, f.end()
}

// proofOf returns the proof that a daemon knows the job's secret: an HMAC of the host's number, the
// job and the nonce.
func proofOf(h hello, host uint16) []byte {
	mac := hmac.New(sha256.New, []byte(h.secret))
	mac.Write(fmt.Appendf(nil, "mpirun-go daemon %d %d %q %q ", version, host, h.job, h.nonce))
	return mac.Sum(nil)
}

// connectRequest is the payload of kindConnect: hosts that a daemon is to connect to.
type connectRequest struct {
	agent    Agent
	timeout  int // milliseconds
	children []child
}

// child is a host to connect to, with the hosts that are reached through it.
type child struct {
	host        int
	name        string
	descendants []int
}

func (a connectRequest) encode() []byte {
	b := appendTexts(nil, a.agent.Words)
	b = appendText(b, string(a.agent.Form))
	b = appendNumber(b, a.timeout)
	b = appendNumber(b, len(a.children))
	for _, c := range a.children {
		b = appendNumbers(appendText(appendNumber(b, c.host), c.name), c.descendants)
	}
	return b
}

func decodeConnect(p []byte) (connectRequest, error) {
	f := payloadReader{rest: p}
	a := connectRequest{agent: Agent{Words: f.texts(), Form: Form(f.text())}, timeout: f.upTo(maxInt)}
	a.children = readList(&f, func() child {
		return child{host: f.upTo(maxHosts - 1), name: f.text(), descendants: f.numbers(maxHosts - 1)}
	})
	return a, f.end()
}

// offer is the payload of kindOffer: a file that the launcher can send.
type offer struct {
	path, hash string
	size       int
}

func (o offer) encode() []byte {
	return appendNumber(appendText(appendText(nil, o.path), o.hash), o.size)
}

func decodeOffer(p []byte) (offer, error) {
	f := payloadReader{rest: p}
	o := offer{path: f.text(), hash: f.text(), size: f.upTo(1 << 40)}
	if f.err == nil && !isHash(o.hash) {
		f.fail("not a hash")
	}
	return o, f.end()
}

// answer is the payload of kindAnswer: the daemon requests the file, or has it at path, or cannot
// store it because of problem.
type answer struct {
	wanted        bool
	path, problem string
}

func (a answer) encode() []byte {
	wanted := 0
	if a.wanted {
		wanted = 1
	}
	return appendText(appendText(appendNumber(nil, wanted), a.path), a.problem)
}

func decodeAnswer(p []byte) (answer, error) {
	f := payloadReader{rest: p}
	a := answer{wanted: f.upTo(1) == 1, path: f.text(), problem: f.text()}
	return a, f.end()
}

// encodeSpec encodes the payload of kindStart. The frame has the rank's number.
func encodeSpec(s procs.Spec) []byte {
	b := appendText(nil, s.Path)
	b = appendTexts(b, s.Args)
	b = appendTexts(b, s.Env)
	b = appendText(b, s.Dir)
	b = appendNumber(b, int(s.Stdin))
	b = appendNumbers(b, s.CPUs)
	b = appendNumber(appendNumber(b, s.Share), s.Shares)
	return appendNumber(b, int(s.TimerSlack))
}

func decodeSpec(p []byte) (procs.Spec, error) {
	f := payloadReader{rest: p}
	s := procs.Spec{
		Path: f.text(), Args: f.texts(), Env: f.texts(), Dir: f.text(),
		Stdin: procs.Stdin(f.upTo(int(procs.StdinPipe))), CPUs: f.numbers(maxCPUNumber),
		Share: f.upTo(maxInt), Shares: f.upTo(maxInt),
		TimerSlack: time.Duration(f.upTo(int(maxTimerSlack))),
	}
	if f.err == nil && (s.Stdin == procs.StdinInherit || len(s.Args) == 0) {
		f.fail("not a rank")
	}
	return s, f.end()
}

// started is the payload of kindStarted: the process of a rank.
type started struct {
	pid     int
	cpus    []int  // like procs.Proc.CPUs
	unbound string // like procs.Proc.Unbound
}

func (s started) encode() []byte {
	return appendText(appendNumbers(appendNumber(nil, s.pid), s.cpus), s.unbound)
}

func decodeStarted(p []byte) (started, error) {
	f := payloadReader{rest: p}
	s := started{pid: f.upTo(maxInt), cpus: f.numbers(maxCPUNumber), unbound: f.text()}
	return s, f.end()
}

// failure is the payload of kindFailed: why a rank cannot be started.
type failure struct {
	path, text string
	errno      syscall.Errno // 0: none
}

func (e failure) encode() []byte {
	return appendNumber(appendText(appendText(nil, e.path), e.text), int(e.errno))
}

func decodeFailure(p []byte) (failure, error) {
	f := payloadReader{rest: p}
	e := failure{path: f.text(), text: f.text(), errno: syscall.Errno(f.upTo(4095))}
	return e, f.end()
}

// exitReport is the payload of kindExit: how a rank's process exited.
type exitReport struct {
	exit    procs.Exit
	order   int
	problem string // why the exit is unknown; "" if it is known
}

func (e exitReport) encode() []byte {
	b := appendNumber(appendNumber(nil, e.exit.Code&0xff), int(e.exit.Signal))
	return appendText(appendNumber(b, e.order), e.problem)
}

func decodeExitReport(p []byte) (exitReport, error) {
	f := payloadReader{rest: p}
	e := exitReport{exit: procs.Exit{Code: f.upTo(255), Signal: syscall.Signal(f.upTo(127))}, order: f.upTo(maxInt), problem: f.text()}
	return e, f.end()
}

// recordDir is a directory in which ranks write records of a kind.
type recordDir struct {
	kind records.Kind
	path string
}

func (f *payloadReader) recordDir() recordDir {
	d := recordDir{records.Kind(f.text()), f.text()}
	if f.err == nil && (!d.kind.IsValid() || !filepath.IsAbs(d.path)) {
		f.fail("not a directory of records")
	}
	return d
}

func appendRecordDir(b []byte, d recordDir) []byte {
	return appendText(appendText(b, string(d.kind)), d.path)
}

// recordDirs is the payload of kindRecordDirs: directories of records, in each of which the
// launcher has made a file of the name marker.
type recordDirs struct {
	marker string
	dirs   []recordDir
}

func (r recordDirs) encode() []byte {
	b := appendNumber(appendText(nil, r.marker), len(r.dirs))
	for _, d := range r.dirs {
		b = appendRecordDir(b, d)
	}
	return b
}

func decodeRecordDirs(p []byte) (recordDirs, error) {
	f := payloadReader{rest: p}
	r := recordDirs{marker: f.text()}
	r.dirs = readList(&f, f.recordDir)
	if f.err == nil && (r.marker == "" || r.marker != filepath.Base(r.marker)) {
		f.fail("not the name of a marker")
	}
	return r, f.end()
}

// ownDirs is the payload of kindOwnDirs: which of the directories are the host's own, by number.
type ownDirs struct {
	own     []int
	problem string // why one cannot be used; "": none
}

func (o ownDirs) encode() []byte { return appendText(appendNumbers(nil, o.own), o.problem) }

func decodeOwnDirs(p []byte) (ownDirs, error) {
	f := payloadReader{rest: p}
	o := ownDirs{own: f.numbers(maxInt), problem: f.text()}
	return o, f.end()
}

// fetchRequest is the payload of kindFetch: the record of a rank.
type fetchRequest struct {
	recordDir
	rank int
}

func (r fetchRequest) encode() []byte {
	return appendNumber(appendRecordDir(nil, r.recordDir), r.rank)
}

func decodeFetch(p []byte) (fetchRequest, error) {
	f := payloadReader{rest: p}
	r := fetchRequest{f.recordDir(), f.upTo(maxInt)}
	return r, f.end()
}

// fetched is the payload of kindFetched: the size of a record, which follows on its stream, or -1
// if there is none, or why it cannot be read.
type fetched struct {
	size    int64
	problem string
}

func (a fetched) encode() []byte { return appendText(appendNumber(nil, int(a.size+1)), a.problem) }

func decodeFetched(p []byte) (fetched, error) {
	f := payloadReader{rest: p}
	a := fetched{size: int64(f.upTo(1<<40)) - 1, problem: f.text()}
	return a, f.end()
}

// decodeNumber decodes a payload that consists of one number.
func decodeNumber(p []byte, limit int) (int, error) {
	f := payloadReader{rest: p}
	v := f.upTo(limit)
	return v, f.end()
}

// isHash reports whether s is a SHA-256 in hex. Such a string is safe as a file name.
func isHash(s string) bool {
	return len(s) == 2*sha256.Size && strings.Trim(s, "0123456789abcdef") == ""
}
