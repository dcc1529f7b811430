package downloads

import (
	"net/http"
	"sync"
	"time"

	"github.com/drover-dev/drover/hub/util/connlimit"
	"github.com/drover-dev/drover/hub/util/ratelimit"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// maxPerAddress is how many downloads one address may have at the same time, behind which several hundred machines may be installed, and
	// maxDownloads how many there may be in all.
	maxPerAddress = 512
	maxDownloads  = 2048
	// minimumRate, in bytes per second, is what a client has to read while it keeps another one waiting, and maxBehind how far it may fall
	// behind that. A client that gets the agent within the time for a download is faster.
	minimumRate = 16 << 10
	maxBehind   = 30 * time.Second
	// retryAfter is how long a client is asked to wait. The install script retries 120 times, an agent that upgrades without end.
	retryAfter = 10 * time.Second
)

// limiter bounds how many downloads there are. Beyond that a new one ends the one that is furthest behind, or has to wait: clients that do
// not read keep nobody from installing a machine, not even behind the same address. Clients that read no faster than they have to keep
// those of other addresses from it neither: where nobody is behind, a new download ends the slowest one of the address that has most.
type limiter struct {
	perAddress, total int

	mu        sync.Mutex
	byAddress map[string]map[*download]struct{}
	count     int
}

// download is an answer that is being written.
type download struct {
	http.ResponseWriter
	address string

	mu sync.Mutex
	// due is when a client of minimumRate would have read what this one has; in the past for one that is slower.
	due time.Time
	// done is set when the ResponseWriter must not be used any more.
	done bool
}

func newLimiter(perAddress, total int) *limiter {
	return &limiter{perAddress: perAddress, total: total, byAddress: map[string]map[*download]struct{}{}}
}

// serve calls next within the limits.
func (l *limiter) serve(w http.ResponseWriter, r *http.Request, next func(http.ResponseWriter, *http.Request) error) error {
	d := &download{ResponseWriter: w, address: ratelimit.ClientKey(r), due: time.Now()}
	replaced, ok := l.add(d)
	if !ok {
		return response.TooMany(retryAfter, "too many downloads at the same time")
	}
	if replaced != nil {
		replaced.abort()
	}
	defer func() {
		l.mu.Lock()
		l.remove(d)
		l.mu.Unlock()
		d.finish()
	}()
	defer connlimit.Answering(r.Context())()
	return next(d, r)
}

// add counts a download. At a limit it takes the place of one that is too far behind, or else of one of the address that has most, unless
// its own address would then have more; ok is false if there is none.
func (l *limiter) add(d *download) (replaced *download, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.byAddress[d.address]
	switch {
	case len(own) >= l.perAddress:
		replaced = slowest(nil, own)
	case l.count >= l.total:
		for _, downloads := range l.byAddress {
			replaced = slowest(replaced, downloads)
		}
	default:
		l.insert(d)
		return nil, true
	}
	if time.Since(replaced.dueAt()) <= maxBehind {
		most := l.most()
		if len(own)+1 >= len(most) {
			return nil, false
		}
		replaced = slowest(nil, most)
	}
	l.remove(replaced)
	l.insert(d)
	return replaced, true
}

// most returns the downloads of the address that has most of them.
func (l *limiter) most() (most map[*download]struct{}) {
	for _, downloads := range l.byAddress {
		if len(downloads) > len(most) {
			most = downloads
		}
	}
	return most
}

// slowest returns which is furthest behind of some downloads and another one, which may be nil.
func slowest(slow *download, downloads map[*download]struct{}) *download {
	for d := range downloads {
		if slow == nil || d.dueAt().Before(slow.dueAt()) {
			slow = d
		}
	}
	return slow
}

func (l *limiter) insert(d *download) {
	if l.byAddress[d.address] == nil {
		l.byAddress[d.address] = map[*download]struct{}{}
	}
	l.byAddress[d.address][d] = struct{}{}
	l.count++
}

// remove removes a download. It may have been removed before.
func (l *limiter) remove(d *download) {
	downloads := l.byAddress[d.address]
	if _, found := downloads[d]; !found {
		return
	}
	l.count--
	if delete(downloads, d); len(downloads) == 0 {
		delete(l.byAddress, d.address)
	}
}

// Write implements io.Writer. What was read fast does not make up for a pause later.
func (d *download) Write(p []byte) (int, error) {
	n, err := d.ResponseWriter.Write(p)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.due = d.due.Add(time.Duration(n) * time.Second / minimumRate)
	if now := time.Now(); d.due.After(now) {
		d.due = now
	}
	return n, err
}

// Unwrap is for http.ResponseController.
func (d *download) Unwrap() http.ResponseWriter { return d.ResponseWriter }

func (d *download) dueAt() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.due
}

// abort makes the present and all further writes fail.
func (d *download) abort() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.done {
		_ = http.NewResponseController(d.ResponseWriter).SetWriteDeadline(time.Unix(1, 0))
	}
}

func (d *download) finish() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.done = true
}
