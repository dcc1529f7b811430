package egress

import (
	"fmt"
	"io"
	"math"
	"mime"
	"net/http"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// maxHeader is how many bytes the header of an answer may have, maxError the body of one that refuses a request: its text is put into
	// conditions, Events and logs.
	maxHeader = 64 << 10
	maxError  = 32 << 10
	// maxRetryAfter is for how many seconds a server may put off client-go, which waits up to ten times, and a reconcile with it.
	maxRetryAfter = 5

	// maxNodes is what a list of Nodes may cost, with all of its pages, as jsonScanner counts; 10,000 Nodes with 50 images each cost less.
	// Where the program has a limit of memory (GOMEMLIMIT), it is that divided by memoryShare if that is less. Other answers may cost that
	// divided by otherShare.
	maxNodes    = 1 << 30
	memoryShare = 8
	otherShare  = 4

	// maxEvent is what one event of a watch may cost; maxFrame is how many bytes it may have as protobuf. An object in etcd has 1.5 MiB.
	maxEvent = 16 << 20
	maxFrame = 2 << 20
	// Of all watches of a cluster so many events, or each eventBytes, are read in a second, and eventBurst at once: more than 10,000 Nodes
	// when a watch begins.
	eventsPerSecond = 500
	eventBurst      = 30_000
	eventBytes      = 16 << 10

	jsonType = "application/json"
)

// LimitError is the error of an answer that is larger than the hub reads.
type LimitError struct {
	// Cluster is namespace and name, Request method and path, and Limit what the answer exceeds.
	Cluster, Request, Limit string
}

// Error implements error.
func (e *LimitError) Error() string {
	return fmt.Sprintf("the answer of cluster %s to %s exceeds the limit of %s", e.Cluster, e.Request, e.Limit)
}

// limitConnections is the wrapper next to the connections.
func limitConnections(next http.RoundTripper) http.RoundTripper {
	if transport, ok := next.(*http.Transport); ok {
		transport.MaxResponseHeaderBytes = maxHeader
		transport.HTTP2 = &http.HTTP2Config{WriteByteTimeout: stallTimeout}
	}
	return next
}

// answers limits the answers of one cluster. client-go reads bodies as a whole, and what they are decoded to may take hundreds of times as
// much memory: an empty Node has two bytes.
type answers struct {
	cluster string
	next    http.RoundTripper
	events  *rate.Limiter

	mu sync.Mutex
	// pages is, by path, what the last list that was requested in pages has cost.
	pages map[string]*atomic.Int64
}

func newAnswers(cluster client.ObjectKey, next http.RoundTripper) *answers {
	return &answers{cluster: cluster.String(), next: next, events: rate.NewLimiter(eventsPerSecond, eventBurst),
		pages: map[string]*atomic.Int64{}}
}

// WrappedRoundTripper lets client-go find the transport below.
func (a *answers) WrappedRoundTripper() http.RoundTripper { return a.next }

// RoundTrip implements http.RoundTripper. Only watches may be answered with protobuf. What that is decoded to cannot be seen without its
// definitions, but an event has one object.
func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	watch := r.URL.Query().Get("watch") == "true"
	if !watch {
		r = r.WithContext(r.Context())
		r.Header = r.Header.Clone()
		r.Header.Set("Accept", acceptJSON(r.Header.Get("Accept")))
	}
	answer, err := a.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	// client-go logs each warning, and http.Client would follow a redirect past this package.
	header := answer.Header
	header.Del("Warning")
	header.Del("Location")
	if seconds, err := strconv.Atoi(header.Get("Retry-After")); err != nil || seconds > maxRetryAfter {
		header.Del("Retry-After")
	}
	answer.Body = a.limit(r, answer, watch)
	return answer, nil
}

// limit returns the body of an answer with its limits. Its type is set to JSON where client-go could take it for anything else but text.
func (a *answers) limit(r *http.Request, answer *http.Response, watch bool) io.ReadCloser {
	success := answer.StatusCode/100 == 2
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")) // empty where there is none
	protobuf := success && watch && kind == runtime.ContentTypeProtobuf
	if !protobuf && kind != jsonType && !strings.HasPrefix(kind, "text/") {
		answer.Header.Set("Content-Type", jsonType)
	}
	body := &limitedBody{ReadCloser: answer.Body, exceeded: &LimitError{Cluster: a.cluster, Request: r.Method + " " + r.URL.Path}}
	switch {
	case !success:
		body.scanner, body.exceeded.Limit = &byteScanner{left: maxError}, fmt.Sprintf("%d KiB for an error", maxError>>10)
		return body
	case protobuf:
		body.scanner, body.exceeded.Limit = &frameScanner{}, fmt.Sprintf("%d MiB for an event", maxFrame>>20)
	case watch:
		body.scanner = &jsonScanner{limit: maxEvent}
		body.exceeded.Limit = fmt.Sprintf("%d MiB of memory for an event", maxEvent>>20)
	default:
		limit := limitOf(r.URL.Path)
		body.scanner = &jsonScanner{limit: limit, total: a.pagesOf(r)}
		body.exceeded.Limit = fmt.Sprintf("%d MiB of memory", limit>>20)
		return body
	}
	body.pace = func(events int) error { return a.events.WaitN(r.Context(), min(events, eventBurst)) }
	body.left = leftOf(r, protobuf)
	return body
}

// leftOf is what a watch may cost with all of its events. Of one that lists (WatchList), client-go keeps what was created until the server
// says that this is all, and shows nobody before. It ends as one does whose time is over: if it has listed, the next one goes on, and
// otherwise client-go begins again with nothing. A byte of JSON counts as several.
func leftOf(r *http.Request, protobuf bool) int64 {
	switch {
	case r.URL.Query().Get("sendInitialEvents") != "true":
		return math.MaxInt64
	case protobuf:
		return limitOf(r.URL.Path)
	}
	return limitOf(r.URL.Path) / otherShare
}

// acceptJSON leaves of an Accept header the kinds that are JSON.
func acceptJSON(accept string) string {
	kinds := slices.DeleteFunc(strings.Split(accept, ","), func(kind string) bool {
		return !strings.HasPrefix(strings.TrimSpace(kind), jsonType)
	})
	if len(kinds) == 0 {
		return jsonType
	}
	return strings.Join(kinds, ",")
}

// limitOf is what an answer may cost.
func limitOf(path string) int64 {
	limit := int64(maxNodes)
	if memory := debug.SetMemoryLimit(-1); memory != math.MaxInt64 {
		limit = min(limit, memory/memoryShare)
	}
	if !strings.HasSuffix(path, "/api/v1/nodes") {
		limit /= otherShare
	}
	return limit
}

// pagesOf is what the pages of a list have cost before the one that is requested. A client requests the next page for as long as the server
// names one, and may keep them all.
func (a *answers) pagesOf(r *http.Request) *atomic.Int64 {
	query := r.URL.Query()
	first, next := query.Get("limit") != "", query.Get("continue") != ""
	a.mu.Lock()
	defer a.mu.Unlock()
	if cost := a.pages[r.URL.Path]; next && cost != nil {
		return cost
	}
	cost := new(atomic.Int64)
	if first || next {
		a.pages[r.URL.Path] = cost
	}
	return cost
}

// scanner looks at a body as it is read. It returns how many values have ended, and false for a value that is too large.
type scanner interface {
	scan(data []byte) (ended int, ok bool)
}

type limitedBody struct {
	io.ReadCloser
	scanner  scanner
	exceeded *LimitError
	// pace waits until so many events may be read; nil where there are none. bytes are those that were not counted as events yet.
	pace  func(events int) error
	bytes int
	// left is what events may still cost, as their bytes and itemCost for each.
	left int64

	failed error
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	n, err := b.ReadCloser.Read(p)
	ended, ok := b.scanner.scan(p[:n])
	switch {
	case !ok:
		b.failed = b.exceeded
		b.log("The answer of a cluster exceeds a limit", b.exceeded.Limit)
	case b.pace != nil && b.left < int64(n)+int64(ended)*itemCost:
		b.failed = io.EOF
		b.log("A watch that began with a list exceeds a limit, ending it", "that of a list")
	case b.pace != nil:
		b.left -= int64(n) + int64(ended)*itemCost
		b.bytes += n
		ended, b.bytes = ended+b.bytes/eventBytes, b.bytes%eventBytes
		b.failed = b.pace(ended)
	}
	if b.failed != nil {
		return 0, b.failed
	}
	return n, err
}

func (b *limitedBody) log(what, limit string) {
	log.Log.WithName("egress").Info(what, "Cluster", b.exceeded.Cluster, "request", b.exceeded.Request, "limit", limit)
}
