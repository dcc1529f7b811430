package plandelivery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/drover-dev/drover/hub/gateway/secretcache"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	// A watch without a timeout of its own ends after watchTimeout to twice that, so that machines do not all reconnect at the same time.
	watchTimeout = 30 * time.Minute
	// longestWatchHeader is that of an agent which notices by missing bookmarks that a connection is dead, and needs no end of its watch for
	// that: for how many seconds it may go on.
	longestWatchHeader = "X-Drover-Longest-Watch"
	// bookmarkInterval is how often a watch that wants bookmarks gets one.
	bookmarkInterval = time.Minute
	// recheckDelay is how long after a change of its account a watch is checked a second time, since an API server caches valid tokens for
	// some seconds.
	recheckDelay = 15 * time.Second
	// relistSpread is the time over which machines that have to list again are refused.
	relistSpread = 2 * time.Second
	// aheadTimeout is how long a watch waits for this replica to see what another replica has seen.
	aheadTimeout = 3 * time.Second
)

// ErrDraining answers what a replica that is about to stop no longer begins.
var ErrDraining = response.Retry(2*time.Second, "this replica of the hub is stopping; retry to reach another one")

// Watch serves List with watch=true: it streams the events of the machine's Secret until the watch's timeout, a revocation of the machine,
// or the drain of this replica. It supports resourceVersion, timeoutSeconds, allowWatchBookmarks and sendInitialEvents; a version that
// cannot be continued from is 410. A watch goes on for longer than its timeoutSeconds where longestWatchHeader allows it, and nobody has to
// know in the meantime that the agent is there. An error is returned only if nothing was written.
//
// While it lasts, it uses little of the stack: of 16 KiB, which authentication and the encoding of a plan may need, Go's garbage collector
// returns the half only if less than a quarter is used, and a hub has ten thousand watches.
func (h *Handler) Watch(w http.ResponseWriter, r *http.Request, m *Machine) error {
	watch, err := h.beginWatch(w, r, m)
	if err != nil {
		return err
	}
	defer watch.end()
	if watch.sendMissed() {
		watch.follow(r.Context())
	}
	return nil
}

// planWatch is a watch of a machine.
type planWatch struct {
	*Handler
	eventStream
	machine *Machine
	watcher *secretcache.PlanWatcher
	missed  []secretcache.PlanEvent
	// changed is sent to when the machine's account has changed, until unsubscribe.
	changed     <-chan struct{}
	unsubscribe func()
	bookmarks   bool
	// overdue is when the watch ends if the machine has to be seen, timeout after how long it ends anyway.
	overdue time.Time
	timeout time.Duration
}

func (h *Handler) beginWatch(w http.ResponseWriter, r *http.Request, m *Machine) (_ *planWatch, err error) {
	query := r.URL.Query()
	if err := h.selects(r, m, query); err != nil {
		return nil, err
	}
	if !h.Secrets.Plans.Synced() {
		return nil, secretcache.ErrNotSynced
	}
	select {
	case <-h.Drain.Draining():
		return nil, ErrDraining
	default:
	}
	asked, err := parseWatch(query, r.Header)
	if err != nil {
		return nil, err
	}
	missed, watcher, err := h.startWatch(r.Context(), m, asked)
	if err != nil {
		return nil, err
	}
	watch := &planWatch{Handler: h, machine: m, watcher: watcher, missed: missed, bookmarks: asked.bookmarks,
		eventStream: eventStream{w: w, control: http.NewResponseController(w), mayRead: m.mayRead}}
	if asked.initialEvents {
		watch.missed = append(watch.missed, secretcache.PlanEvent{Type: "BOOKMARK", Version: watcher.Start, InitialEnd: true})
	}
	watch.changed, watch.unsubscribe = h.Secrets.SubscribeAccount(m.Account)
	// A revocation from before the subscription is not notified any more.
	if !h.Machines.stillAllowed(r.Context(), m, false) {
		watch.end()
		return nil, ErrUnauthorized
	}
	watch.overdue, watch.timeout = time.Now().Add(asked.timeout), asked.timeout
	if !h.mustBeSeen(m) {
		watch.timeout = max(watch.timeout, asked.longest)
	}
	return watch, nil
}

func (p *planWatch) end() {
	p.unsubscribe()
	p.Secrets.Plans.Unwatch(p.watcher)
}

// sendMissed sends what has happened until now. It returns false if the watch is over.
func (p *planWatch) sendMissed() bool {
	if p.begin() != nil {
		return false
	}
	for _, event := range p.missed {
		if p.send(event) != nil {
			return false
		}
	}
	p.missed = nil
	return true
}

// follow sends what happens from now on.
func (p *planWatch) follow(ctx context.Context) {
	bookmarks, end := time.NewTicker(bookmarkInterval), time.NewTimer(p.timeout)
	defer bookmarks.Stop()
	defer end.Stop()
	var recheck <-chan time.Time
	draining := p.Drain.Draining()
	for {
		select {
		case event, open := <-p.watcher.Events():
			if !open || p.send(event) != nil {
				return
			}
		case <-bookmarks.C:
			if time.Now().After(p.overdue) && p.mustBeSeen(p.machine) || p.sendBookmark() != nil {
				return
			}
		case <-p.changed:
			// If the watch ends, the machine gets the reason with its next request.
			if !p.Machines.stillAllowed(ctx, p.machine, true) {
				return
			}
			recheck = time.After(recheckDelay)
		case <-recheck:
			if !p.Machines.stillAllowed(ctx, p.machine, true) {
				return
			}
		case <-draining:
			draining = nil
			end.Reset(p.Drain.Delay())
		case <-end.C:
			return
		case <-p.Drain.Stopping():
			return
		case <-ctx.Done():
			return
		}
	}
}

// sendBookmark sends the version up to which the machine has seen everything, if it wants to know. A bookmark must not overtake events that
// it says were seen.
func (p *planWatch) sendBookmark() error {
	if !p.bookmarks {
		return nil
	}
	version, delivered := p.Secrets.Plans.Delivered(p.watcher)
	if !delivered {
		return nil
	}
	return p.send(secretcache.PlanEvent{Type: "BOOKMARK", Version: version})
}

// startWatch waits for a moment if the machine has seen more through another replica than this one has.
func (h *Handler) startWatch(
	ctx context.Context, m *Machine, asked watchOptions,
) ([]secretcache.PlanEvent, *secretcache.PlanWatcher, error) {
	ahead, cancel := context.WithTimeout(ctx, aheadTimeout)
	defer cancel()
	for {
		progress := h.Secrets.Plans.Progress()
		missed, watcher, err := h.Secrets.Plans.Watch(m.Account, asked.version)
		if err == nil {
			return missed, watcher, nil
		}
		if errors.Is(err, secretcache.ErrAhead) {
			select {
			case <-progress:
				continue
			case <-ahead.Done():
			}
		}
		// Either way the machine has to list again. After a restore of the API's storage all machines have to, which is spread.
		select {
		case <-time.After(rand.N(relistSpread)):
		case <-ctx.Done():
		}
		return nil, nil, apierrors.NewResourceExpired(fmt.Sprintf("%v: %d", err, asked.version))
	}
}

// watchOptions are the parameters of a watch.
type watchOptions struct {
	// version is the resourceVersion to continue from; 0 for a watch that begins.
	version       uint64
	bookmarks     bool
	initialEvents bool
	timeout       time.Duration
	// longest is for how long it may go on if that is longer; 0 for no longer.
	longest time.Duration
}

func parseWatch(query url.Values, header http.Header) (watchOptions, error) {
	o := watchOptions{timeout: watchTimeout + rand.N(watchTimeout)}
	var err error
	if version := query.Get("resourceVersion"); version != "" {
		if o.version, err = secretcache.ParseVersion(version); err != nil {
			return o, apierrors.NewBadRequest(err.Error())
		}
	}
	if seconds := query.Get("timeoutSeconds"); seconds != "" {
		n, err := strconv.ParseUint(seconds, 10, 31)
		if err != nil {
			return o, apierrors.NewBadRequest(fmt.Sprintf("timeoutSeconds %q is not a number of seconds", seconds))
		}
		if n > 0 {
			o.timeout = min(time.Duration(n)*time.Second, 2*watchTimeout)
		}
	}
	if seconds, err := strconv.ParseUint(header.Get(longestWatchHeader), 10, 31); err == nil {
		o.longest = min(time.Duration(seconds)*time.Second, watchTimeout+rand.N(watchTimeout))
	}
	o.bookmarks, _ = strconv.ParseBool(query.Get("allowWatchBookmarks"))
	o.initialEvents, _ = strconv.ParseBool(query.Get("sendInitialEvents"))
	if o.initialEvents {
		// The present state comes first, whatever version was asked for.
		o.version = 0
	}
	return o, nil
}

// eventStream writes events as Kubernetes does: JSON objects, one after the other, each flushed at once.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// mayRead reports whether the machine may see a Secret; events of others are left out.
	mayRead func(*corev1.Secret) bool
}

func (e *eventStream) begin() error {
	e.w.Header().Set("Content-Type", "application/json")
	e.w.Header().Set("Cache-Control", "no-store")
	e.w.WriteHeader(http.StatusOK)
	return e.flush()
}

func (e *eventStream) send(event secretcache.PlanEvent) error {
	if event.Secret == nil {
		return e.write(bookmark(event))
	}
	if !e.mayRead(event.Secret) {
		return nil
	}
	line, err := json.Marshal(struct {
		Type   string         `json:"type"`
		Object *corev1.Secret `json:"object"`
	}{event.Type, event.Secret})
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	return e.write(append(line, '\n'))
}

// bookmark is the line of an event without a Secret. Ten thousand watches get one each minute, of which encoding/json would be the most.
func bookmark(event secretcache.PlanEvent) []byte {
	annotations := ""
	if event.InitialEnd {
		annotations = `,"annotations":{"` + metav1.InitialEventsAnnotationKey + `":"true"}`
	}
	return fmt.Appendf(nil, `{"type":%q,"object":{"kind":"Secret","apiVersion":"v1","metadata":{"resourceVersion":"%d"%s}}}`+"\n",
		event.Type, event.Version, annotations)
}

func (e *eventStream) write(line []byte) error {
	response.SetTimeout(e.w, AnswerTimeout)
	if err := response.WriteChunks(e.w, line); err != nil {
		return err
	}
	return e.flush()
}

// flush sends what was written and clears the write deadline: one that expires while there are no events would end the watch.
func (e *eventStream) flush() error {
	if err := e.control.Flush(); err != nil {
		return err
	}
	_ = e.control.SetWriteDeadline(time.Time{})
	return nil
}
