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

// watchPlan streams the events of the machine's Secret until the watch's timeout, a revocation of the machine, or the drain of this
// replica. It supports resourceVersion, timeoutSeconds, allowWatchBookmarks and sendInitialEvents; a version that cannot be continued from
// is 410. A watch goes on for longer than its timeoutSeconds where longestWatchHeader allows it, and nobody has to know in the meantime
// that the agent is there. An error is returned only if nothing was written.
func (h *Handler) watchPlan(w http.ResponseWriter, r *http.Request, m *Machine, query url.Values) error {
	if !h.Secrets.Plans.Synced() {
		return secretcache.ErrNotSynced
	}
	select {
	case <-h.Drain.Draining():
		return ErrDraining
	default:
	}
	asked, err := parseWatch(query, r.Header)
	if err != nil {
		return err
	}
	missed, watcher, err := h.startWatch(r.Context(), m, asked)
	if err != nil {
		return err
	}
	defer h.Secrets.Plans.Unwatch(watcher)
	changed, unsubscribe := h.Secrets.SubscribeAccount(m.Account)
	defer unsubscribe()
	// A revocation from before the subscription is not notified any more.
	if !h.Machines.stillAllowed(r.Context(), m, false) {
		return ErrUnauthorized
	}

	stream := &eventStream{w: w, control: http.NewResponseController(w), mayRead: m.mayRead}
	if err := stream.begin(); err != nil {
		return nil
	}
	if asked.initialEvents {
		missed = append(missed, secretcache.PlanEvent{Type: "BOOKMARK", Version: watcher.Start, InitialEnd: true})
	}
	for _, event := range missed {
		if stream.send(event) != nil {
			return nil
		}
	}
	bookmarks, overdue, timeout := time.NewTicker(bookmarkInterval), time.Now().Add(asked.timeout), asked.timeout
	if !h.mustBeSeen(m) {
		timeout = max(timeout, asked.longest)
	}
	end := time.NewTimer(timeout)
	defer bookmarks.Stop()
	defer end.Stop()
	var recheck <-chan time.Time
	draining := h.Drain.Draining()
	for {
		select {
		case event, open := <-watcher.Events():
			if !open || stream.send(event) != nil {
				return nil
			}
		case <-bookmarks.C:
			if time.Now().After(overdue) && h.mustBeSeen(m) {
				return nil
			}
			if !asked.bookmarks {
				continue
			}
			// A bookmark must not overtake events that it says were seen.
			if version, delivered := h.Secrets.Plans.Delivered(watcher); delivered && stream.send(secretcache.PlanEvent{Type: "BOOKMARK",
				Version: version}) != nil {
				return nil
			}
		case <-changed:
			// If the watch ends, the machine gets the reason with its next request.
			if !h.Machines.stillAllowed(r.Context(), m, true) {
				return nil
			}
			recheck = time.After(recheckDelay)
		case <-recheck:
			if !h.Machines.stillAllowed(r.Context(), m, true) {
				return nil
			}
		case <-draining:
			draining = nil
			end.Reset(h.Drain.Delay())
		case <-end.C:
			return nil
		case <-h.Drain.Stopping():
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
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
	secret := event.Secret
	if secret != nil && !e.mayRead(secret) {
		return nil
	}
	if secret == nil {
		secret = &corev1.Secret{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}}
		secret.ResourceVersion = strconv.FormatUint(event.Version, 10)
		if event.InitialEnd {
			secret.Annotations = map[string]string{metav1.InitialEventsAnnotationKey: "true"}
		}
	}
	line, err := json.Marshal(struct {
		Type   string         `json:"type"`
		Object *corev1.Secret `json:"object"`
	}{event.Type, secret})
	if err != nil {
		return fmt.Errorf("encoding an event: %w", err)
	}
	response.SetTimeout(e.w, AnswerTimeout)
	if err := response.WriteChunks(e.w, append(line, '\n')); err != nil {
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
