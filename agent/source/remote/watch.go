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

// follow lists the Secret and watches it to the end of one watch.
func (s *Source) follow(ctx context.Context, c *client) error {
	select {
	case <-s.refused: // of the connection before
	default:
	}
	secret, version, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("listing: %w", err)
	}
	s.answered()
	s.attempts.useless = 0
	if secret == nil {
		s.log.Info("The plan Secret is not there yet", "namespace", c.namespace, "name", c.name)
	} else {
		s.publish(secret)
	}
	if err := s.followAuthorities(ctx, c); err != nil {
		return err
	}
	// After the watch the Secret is listed anew, and not watched from the last version on: a hub that was restored from a backup counts its
	// versions from a lower one again, and would tell of nothing until it has caught up.
	return s.watch(ctx, c, version, shortestWatch+rand.N(longestWatch-shortestWatch))
}

// watch follows one watch to its end.
func (s *Source) watch(ctx context.Context, c *client, version string, last time.Duration) error {
	// A server that forgets to end the watch, or a connection that is dead, does not keep the agent deaf.
	ctx, cancel := context.WithTimeout(ctx, last+callTimeout)
	defer cancel()
	started := time.Now()
	w, err := c.watch(ctx, version, last)
	if err != nil {
		return fmt.Errorf("watching: %w", err)
	}
	defer w.Stop()
	if err := s.followAuthorities(ctx, c); err != nil {
		return err
	}
	silence := time.NewTimer(s.silence)
	defer silence.Stop()
	for {
		select {
		case <-s.replaced:
			if s.changed() {
				return errReplaced
			}
		case <-s.refused:
			return errAnew
		case <-silence.C:
			if s.bookmarks {
				return fmt.Errorf("watching: the hub has sent nothing for %s", s.silence)
			}
		case event, open := <-w.ResultChan():
			if !open {
				if time.Since(started) < time.Second {
					return errors.New("watching: the server ended the watch at once")
				}
				return nil
			}
			silence.Reset(s.silence)
			if err := s.take(c, event); err != nil {
				return err
			}
		}
	}
}

// take takes an event.
func (s *Source) take(c *client, event watch.Event) error {
	secret, ok := event.Object.(*corev1.Secret)
	if !ok {
		// "Gone" among others: the next list starts over.
		return fmt.Errorf("watching: %w", apierrors.FromObject(event.Object))
	}
	switch event.Type {
	case watch.Added, watch.Modified:
		s.publish(secret)
	case watch.Deleted:
		s.log.Info("The plan Secret has been deleted", "namespace", c.namespace, "name", c.name)
	case watch.Bookmark:
		// A hub sends one a minute or none at all. Where there are some, silence means that nothing comes through any more.
		s.bookmarks = true
	}
	return nil
}
