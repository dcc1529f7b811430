package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/agent/registration"
)

const (
	// After a failure of the way the next try comes after firstTry to longestTry, after a refusal of the hub after refusedTry.
	firstTry   = 5 * time.Second
	longestTry = 5 * time.Minute
	refusedTry = time.Hour
)

// attempts is what Run knows of registrations.
type attempts struct {
	// next is when the next one may be made, and reason why the last one was not the last.
	next   time.Time
	reason error
	// failures in a row on the way, and successes in a row after which the hub refused the new token as well.
	failures, useless int
	// refused is the content of the connection info that the hub has refused.
	refused string
}

// isRefused tells whether the hub does not take the machine's token.
func isRefused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

// register asks the hub for a new connection when the old one is refused. It returns errReplaced when there is one, and otherwise why there
// is none. It asks at most as often as attempts say.
func (s *Source) register(ctx context.Context, c *client) error {
	if s.host == nil || s.identity == "" {
		return errors.New("register the machine again with the install script")
	}
	if string(c.file) != s.attempts.refused {
		// Somebody has put another connection there: it starts anew, but for what the agent itself has put there.
		s.attempts = attempts{refused: string(c.file), useless: s.attempts.useless}
		if s.attempts.useless > 0 {
			s.attempts.next = time.Now().Add(jitter(min(time.Minute<<min(s.attempts.useless, 6), refusedTry)))
			s.attempts.reason = errors.New("the hub refuses the token that it gave this machine when it registered again")
		}
	}
	if wait := time.Until(s.attempts.next); wait > 0 {
		return fmt.Errorf("%w; next try in %s", s.attempts.reason, wait.Round(time.Second))
	}
	err := s.registerNow(ctx, c)
	if errors.Is(err, errReplaced) || ctx.Err() != nil {
		return err
	}
	s.counters.registrationsFailed.Add(1)
	var refusal *registration.Refusal
	pause := min(firstTry<<min(s.attempts.failures, 6), longestTry)
	if errors.As(err, &refusal) {
		pause = max(pause, refusal.RetryAfter)
	}
	if refusal != nil && refusal.Final() || errors.Is(err, registration.ErrNoIdentity) {
		pause = refusedTry
	}
	s.attempts.failures++
	// Only later, never sooner: what the hub asked for and the hour are bounds.
	s.attempts.next, s.attempts.reason = time.Now().Add(pause+jitter(pause/4)), err
	return err
}

func (s *Source) registerNow(ctx context.Context, c *client) error {
	identity, err := registration.ReadIdentity(s.identity)
	if err != nil {
		return err
	}
	if wait := c.transport.patience(); wait > 0 {
		return &busyError{wait}
	}
	answer, err := registration.Register(ctx, c.http, c.config.Host, identity)
	if err != nil {
		return err
	}
	// The key for signatures stays the one that was pinned first: only a person on the machine replaces it.
	if pinned := c.connection.PlanSigningKey; pinned != "" {
		if answer.PlanSigningKey != "" && answer.PlanSigningKey != pinned {
			s.log.Warn("The hub signs plans with another key than the one that this machine trusts, which stays", "changed by", "the install script")
		}
		answer.PlanSigningKey = pinned
	}
	next, err := newClient(answer, nil, s.strict)
	if err != nil {
		return fmt.Errorf("the hub's answer to the registration cannot be used: %w", err)
	}
	if hasAuthorities(c.config) && !hasAuthorities(next.config) {
		return errors.New("the hub's answer to the registration holds no certificate authority, and would make the machine trust more than it did")
	}
	if answer == c.connection {
		return errors.New("the hub gave the machine the same token again, which it refuses")
	}
	if err := s.store(c, answer); err != nil {
		return err
	}
	s.counters.registrations.Add(1)
	s.attempts.useless++
	s.log.Info("The hub refused this machine's token and has given it a new one", "namespace", answer.Namespace, "name", answer.SecretName)
	return errReplaced
}

func hasAuthorities(c *rest.Config) bool {
	return len(c.CAData) > 0 || c.CAFile != ""
}
