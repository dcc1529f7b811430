package remote

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// The timeout of a watch is random, so that a thousand agents do not come back at once.
	minWatchTimeout = 5 * time.Minute
	maxWatchTimeout = 10 * time.Minute
	// longestWatch is how long a hub may let a watch go on that sends bookmarks: without them nothing but its end tells that a connection is
	// dead. It decides how often it has to know that the agent is there.
	longestWatch = time.Hour
	// maxWatchSilence is longer than the interval of two bookmarks.
	maxWatchSilence = 150 * time.Second
)

// errTokenRefused ends a watch when a request beside it was refused.
var errTokenRefused = errors.New("watching: the hub refused the token in another request")

// listAndWatch lists the Secret and watches it until the watch ends, which is no error.
func (s *Source) listAndWatch(ctx context.Context, c *client) error {
	select {
	case <-s.unauthorized: // of the former connection
	default:
	}
	secret, version, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	s.setProblem(nil)
	s.registrations.rejectedTokens = 0
	if secret == nil {
		s.Log.Info("The plan Secret does not exist yet", "namespace", c.namespace, "name", c.name)
	} else {
		s.publish(secret)
	}
	if err := s.followAuthorities(ctx, c); err != nil {
		return err
	}
	// After the watch the Secret is listed again, and not watched from the last version on: a hub that was restored from a backup has lower
	// versions again, and would send no event until it has caught up.
	return s.watch(ctx, c, version, minWatchTimeout+rand.N(maxWatchTimeout-minWatchTimeout))
}

func (s *Source) watch(ctx context.Context, c *client, version string, timeout time.Duration) error {
	longest := timeout
	if s.bookmarks {
		longest = longestWatch
	}
	// Also where the server ignores the timeout, or the connection is dead.
	ctx, cancel := context.WithTimeout(ctx, longest+requestTimeout)
	defer cancel()
	started := time.Now()
	w, err := c.watch(ctx, version, timeout, longest)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer w.Stop()
	if err := s.followAuthorities(ctx, c); err != nil {
		return err
	}
	silence := time.NewTimer(s.watchSilence)
	defer silence.Stop()
	for {
		select {
		case <-s.replaced:
			if s.otherConnection(c.file) != nil {
				return errReplaced
			}
		case <-s.unauthorized:
			return errTokenRefused
		case <-silence.C:
			if s.bookmarks {
				return fmt.Errorf("watching: the hub has sent nothing for %s", s.watchSilence)
			}
		case event, open := <-w.ResultChan():
			if !open {
				if time.Since(started) < time.Second {
					return errors.New("watching: the server ended the watch immediately")
				}
				return nil
			}
			silence.Reset(s.watchSilence)
			if err := s.handle(c, event); err != nil {
				return err
			}
		}
	}
}

func (s *Source) handle(c *client, event watch.Event) error {
	secret, ok := event.Object.(*corev1.Secret)
	if !ok {
		// 410 Gone among others: the next list starts over.
		return fmt.Errorf("watching: %w", apierrors.FromObject(event.Object))
	}
	if event.Type != watch.Bookmark && !c.isOwn(secret) {
		s.Log.Warn("The hub sent another Secret than the machine's plan Secret, it is ignored",
			"namespace", secret.Namespace, "name", secret.Name)
		return nil
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		s.publish(secret)
	case watch.Deleted:
		s.Log.Info("The plan Secret has been deleted", "namespace", c.namespace, "name", c.name)
	case watch.Bookmark:
		// A hub sends one a minute or none at all. Where there are some, silence means that the connection is dead.
		s.bookmarks = true
	}
	return nil
}
