package remote

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/agent/source"
)

// maxClockSkew is up to what difference two clocks count as equal: the Date of a response has whole seconds and took its time.
const maxClockSkew = 2 * time.Minute

// explain adds to an error what an operator can do about it.
func explain(err error) error {
	var hostname x509.HostnameError
	switch {
	case isUnknownAuthority(err):
		return fmt.Errorf("the hub's certificate is not signed by the CA of the connection info; register the machine again: %w", err)
	case isExpired(err):
		return fmt.Errorf("the hub's certificate is not valid at this machine's time; check the clocks: %w", err)
	case errors.As(err, &hostname):
		return fmt.Errorf("the hub's certificate is for another name: %w", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the hub does not know this machine's token; register the machine again: %w", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the hub does not let this machine read its plan Secret: %w", err)
	}
	return err
}

// classify gives an error of an update the class that the engine acts on.
func classify(err error) error {
	switch {
	case err == nil:
		return nil
	case isMissing(err):
		return source.ErrSuperseded
	case apierrors.IsRequestEntityTooLargeError(err), apierrors.IsInvalid(err):
		return fmt.Errorf("updating the plan Secret: %w: %w", source.ErrTooLarge, err)
	}
	return fmt.Errorf("updating the plan Secret: %w", explain(err))
}

// isMissing reports whether the API says that the Secret does not exist. A 404 without a Status says nothing about it: it comes from a
// proxy without a route to the hub, or from a hub that starts.
func isMissing(err error) bool {
	return apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err)
}

// isUnknownAuthority reports whether a certificate was refused because no trusted authority has signed it.
func isUnknownAuthority(err error) bool {
	var authority x509.UnknownAuthorityError
	return errors.As(err, &authority)
}

// isExpired reports whether a certificate was refused because it has expired, or is not valid yet.
func isExpired(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

// isRefused reports whether the hub refuses the machine's token.
func isRefused(err error) bool {
	return apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

// compareClocks asks the hub for its time, and returns how the machine's differs from it as an error. The response is not verified and only
// shown.
func compareClocks(ctx context.Context, c *client) error {
	unverified := c.unverified()
	defer unverified.CloseIdleConnections()
	response, err := getPublic(ctx, unverified, c, "/healthz")
	if err != nil {
		return fmt.Errorf("reading the hub's time: %w", err)
	}
	response.Body.Close()
	hubTime, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return errors.New("the hub's response has no Date header")
	}
	switch skew := time.Since(hubTime).Round(time.Second); {
	case skew > maxClockSkew:
		return fmt.Errorf("this machine's clock is %s ahead of the hub's; correct it", skew)
	case skew < -maxClockSkew:
		return fmt.Errorf("this machine's clock is %s behind the hub's; correct it", -skew)
	}
	return errors.New("the clocks of this machine and the hub agree; renew the hub's certificate")
}
