package remote

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/client-go/rest"

	"github.com/drover-dev/drover/agent/registration"
	"github.com/drover-dev/drover/agent/retry"
)

const (
	// After a failed request the next registration is tried after baseRegistrationDelay up to maxRegistrationDelay, after a refusal up to
	// refusedDelay.
	baseRegistrationDelay = 5 * time.Second
	maxRegistrationDelay  = 5 * time.Minute
	refusedDelay          = time.Hour
	// rejectedTokenDelay is the delay after the hub has refused a token that it had just given, which doubles up to refusedDelay.
	rejectedTokenDelay = 2 * time.Minute
)

// registrationState is what Run knows of its registrations.
type registrationState struct {
	// notBefore is when the next one may be tried, and reason why the last one did not help.
	notBefore time.Time
	reason    error
	// failures counts failed registrations in a row, rejectedTokens successful ones in a row whose token the hub then refused.
	failures, rejectedTokens int
	// refused is the content of the connection info that the hub has refused.
	refused string
}

// register requests a new connection from the hub after it has refused the token, at most as often as registrationState allows. It returns
// errReplaced if there is one, and otherwise why there is none.
func (s *Source) register(ctx context.Context, c *client) error {
	if s.Host == nil || s.IdentityDirectory == "" {
		return errors.New("register the machine again with the install script")
	}
	state := &s.registrations
	if string(c.file) != state.refused {
		// Somebody has written another connection, which starts over, or the agent itself, which does not.
		*state = registrationState{refused: string(c.file), rejectedTokens: state.rejectedTokens}
		if state.rejectedTokens > 0 {
			state.notBefore = time.Now().Add(retry.Delay(state.rejectedTokens, rejectedTokenDelay, refusedDelay))
			state.reason = errors.New("the hub refuses the token that it gave this machine when it registered again")
		}
	}
	if wait := time.Until(state.notBefore); wait > 0 {
		return fmt.Errorf("%w; next try in %s", state.reason, wait.Round(time.Second))
	}
	err := s.requestConnection(ctx, c)
	if errors.Is(err, errReplaced) || ctx.Err() != nil {
		return err
	}
	s.count(&s.connections.RegistrationsFailed)
	state.failures++
	delay := registrationDelay(err, state.failures)
	// The jitter only adds: what the hub asked for and the hour are lower bounds.
	state.notBefore, state.reason = time.Now().Add(delay+retry.Jitter(delay/4)), err
	return err
}

// registrationDelay is how long after failures in a row, of which err is the last, the hub is asked again.
func registrationDelay(err error, failures int) time.Duration {
	var refusal *registration.StatusError
	limit := maxRegistrationDelay
	switch is := errors.As(err, &refusal); {
	case errors.Is(err, registration.ErrNoIdentity), is && refusal.Permanent() && refusal.NoStoredIdentity:
		return refusedDelay // until somebody does something on the machine, or replaces the hub
	case !is:
		return retry.Exponential(failures, baseRegistrationDelay, limit)
	case refusal.Permanent():
		// Between two hubs, or in the middle of a restore, nobody knows the machine for a while.
		limit = refusedDelay
	}
	return max(retry.Exponential(failures, baseRegistrationDelay, limit), refusal.RetryAfter)
}

// requestConnection registers with the machine's identity and writes the connection info.
func (s *Source) requestConnection(ctx context.Context, c *client) error {
	identity, err := registration.ReadIdentity(s.IdentityDirectory)
	if err != nil {
		return err
	}
	if wait := c.transport.notBefore.Wait(); wait > 0 {
		return &busyError{wait}
	}
	connection, err := registration.Register(ctx, c.http, c.config.Host, identity)
	if err != nil {
		return err
	}
	// The signing key stays the one that was pinned first: only a person on the machine replaces it.
	if pinned := c.connection.PlanSigningKey; pinned != "" {
		if connection.PlanSigningKey != "" && connection.PlanSigningKey != pinned {
			s.Log.Warn("The hub signs plans with another key than the pinned one, which stays; run the install script to replace it")
		}
		connection.PlanSigningKey = pinned
	}
	next, err := newClient(connection, nil, s.Options)
	if err != nil {
		return fmt.Errorf("the hub's response to the registration is invalid: %w", err)
	}
	if hasAuthorities(c.config) && !hasAuthorities(next.config) {
		return errors.New("the hub's response to the registration has no certificate authority, so the machine would trust more than before")
	}
	if connection == c.connection {
		return errors.New("the hub gave the machine the same token again, which it refuses")
	}
	return s.replaceConnection(c, connection, func() {
		s.count(&s.connections.Registrations)
		s.registrations.rejectedTokens++
		s.Log.Info("Registered again after the hub refused this machine's token",
			"namespace", connection.Namespace, "name", connection.SecretName)
	})
}

func hasAuthorities(c *rest.Config) bool {
	return len(c.CAData) > 0 || c.CAFile != ""
}
