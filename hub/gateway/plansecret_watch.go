package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// A watch without a timeout of its own ends after watchTimeout to twice that, so that machines do not all come back at once.
	watchTimeout = 30 * time.Minute
	// bookmarkEvery is how often a watch that wants bookmarks gets one.
	bookmarkEvery = time.Minute
	// recheckAgain is after how long a watch looks once more whether its machine may still see what it watches, since an API server
	// remembers for some seconds that a token was good.
	recheckAgain = 15 * time.Second
	// relistWithin is the time over which machines are told that they have to list again.
	relistWithin = 2 * time.Second
	// eventPiece is how much of an event is written at once: no more than what net/http collects for a frame of HTTP/2.
	eventPiece = 4 << 10
	// aheadTimeout is how long a watch waits for this replica to see what another replica has seen.
	aheadTimeout = 3 * time.Second
)

// watchPlan streams the events of the machine's Secret. An error is returned only as long as nothing was written.
func (s *Server) watchPlan(w http.ResponseWriter, r *http.Request, m *machine, query url.Values) error {
	if !s.plans.synced() {
		return errStarting
	}
	if s.drain.draining() {
		return errDraining
	}
	asked, err := parseWatch(query)
	if err != nil {
		return err
	}
	missed, watcher, err := s.startWatch(r.Context(), m, asked)
	if err != nil {
		return err
	}
	defer s.plans.unwatch(watcher)
	changed, unsubscribe := s.sources.changed.subscribe(accountSubject(m.account.Namespace, m.account.Name))
	defer unsubscribe()
	// What was taken back before the subscription is not told any more.
	if !s.stillKnown(r.Context(), m) {
		return errUnauthorized
	}

	stream := &eventStream{w: w, control: http.NewResponseController(w), mayRead: m.mayRead}
	if err := stream.begin(); err != nil {
		return nil
	}
	if asked.initialEvents {
		missed = append(missed, planEvent{Type: "BOOKMARK", Version: watcher.start, InitialEnd: true})
	}
	for _, event := range missed {
		if stream.send(event) != nil {
			return nil
		}
	}
	bookmarks, end := time.NewTicker(bookmarkEvery), time.NewTimer(asked.timeout)
	defer bookmarks.Stop()
	defer end.Stop()
	var again <-chan time.Time
	draining := s.drain.begun
	for {
		select {
		case event, open := <-watcher.events:
			if !open || stream.send(event) != nil {
				return nil
			}
		case <-bookmarks.C:
			if !asked.bookmarks {
				continue
			}
			// Events that are on their way come before a bookmark that says that they were seen.
			if version, quiet := s.plans.quiet(watcher); quiet && stream.send(planEvent{Type: "BOOKMARK", Version: version}) != nil {
				return nil
			}
		case <-changed:
			// Where the watch ends, the machine is told why on the next connection.
			if s.machines.forget(m.token); !s.stillKnown(r.Context(), m) {
				return nil
			}
			again = time.After(recheckAgain)
		case <-again:
			if s.machines.forget(m.token); !s.stillKnown(r.Context(), m) {
				return nil
			}
			again = nil
		case <-draining:
			draining = nil
			end.Reset(s.drain.someTime())
		case <-end.C:
			return nil
		case <-s.stopping:
			return nil
		case <-r.Context().Done():
			return nil
		}
	}
}

// stillKnown tells whether the machine may see what it watches. It may while that cannot be found out.
func (s *Server) stillKnown(ctx context.Context, m *machine) bool {
	still, err := s.machines.authenticate(ctx, m.token)
	return err == nil && still.plan == m.plan && still.bootstrap.UID == m.bootstrap.UID || err != nil && !errors.Is(err, errUnauthorized)
}

// startWatch waits for a moment where the machine has seen more than this replica has, through another one.
func (s *Server) startWatch(ctx context.Context, m *machine, asked watchOptions) ([]planEvent, *planWatcher, error) {
	ahead, cancel := context.WithTimeout(ctx, aheadTimeout)
	defer cancel()
	for {
		progress := s.plans.progress()
		missed, watcher, err := s.plans.watch(m.plan, asked.version)
		if err == nil {
			return missed, watcher, nil
		}
		if errors.Is(err, errAhead) {
			select {
			case <-progress:
				continue
			case <-ahead.Done():
			}
		}
		// Either way the machine has to list again, from which it learns what is there now. Where the API's storage went back in time, all
		// machines have to, and not at the same moment.
		select {
		case <-time.After(rand.N(relistWithin)):
		case <-ctx.Done():
		}
		return nil, nil, apierrors.NewResourceExpired(fmt.Sprintf("%v: %d", err, asked.version))
	}
}

// watchOptions are what a watch asks for.
type watchOptions struct {
	version       uint64
	bookmarks     bool
	initialEvents bool
	timeout       time.Duration
}

func parseWatch(query url.Values) (watchOptions, error) {
	o := watchOptions{timeout: watchTimeout + rand.N(watchTimeout)}
	var err error
	if version := query.Get("resourceVersion"); version != "" {
		if o.version, err = parseVersion(version); err != nil {
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
	o.bookmarks, _ = strconv.ParseBool(query.Get("allowWatchBookmarks"))
	o.initialEvents, _ = strconv.ParseBool(query.Get("sendInitialEvents"))
	if o.initialEvents {
		// What is there now comes first, whatever version was named.
		o.version = 0
	}
	return o, nil
}

// eventStream writes events as Kubernetes does: JSON objects, one after the other, each sent at once.
type eventStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	// mayRead tells of which Secrets the machine may learn; events of others are left out.
	mayRead func(*corev1.Secret) bool
}

func (e *eventStream) begin() error {
	e.w.Header().Set("Content-Type", "application/json")
	e.w.Header().Set("Cache-Control", "no-store")
	e.w.WriteHeader(http.StatusOK)
	return e.flush()
}

func (e *eventStream) send(event planEvent) error {
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
	// A machine that does not read for a minute is gone.
	writeWithin(e.w, answerTimeout)
	// In pieces, since the connection keeps a buffer of the size of the largest for as long as it lasts.
	for piece := range slices.Chunk(append(line, '\n'), eventPiece) {
		if _, err := e.w.Write(piece); err != nil {
			return err
		}
	}
	return e.flush()
}

// flush sends what was written and lifts the bound for it: until the next event there is nothing to read, for however long, and a bound
// that runs out meanwhile would end the watch.
func (e *eventStream) flush() error {
	if err := e.control.Flush(); err != nil {
		return err
	}
	_ = e.control.SetWriteDeadline(time.Time{}) // not supported in a test's recorder, as in writeWithin
	return nil
}
