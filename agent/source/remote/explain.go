package remote

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/plans"
)

// sameClock is up to what difference two clocks count as the same; the Date of an answer has whole seconds and took its time.
const sameClock = 2 * time.Minute

// explain adds what an operator can do about an error.
func explain(err error) error {
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the hub's certificate is not signed by the CA of the connection info; register the machine again: %w", err)
	case isOutOfTime(err):
		return fmt.Errorf("the hub's certificate is not valid at this machine's time; check the clocks: %w", err)
	case errors.As(err, &hostname):
		return fmt.Errorf("the hub's certificate is for another name: %w", err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("the hub does not know this machine's token; register the machine again: %w", err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the hub does not let this machine see its plan Secret: %w", err)
	default:
		return err
	}
}

// isOutOfTime tells whether a certificate was refused because it has ended, or has not begun.
func isOutOfTime(err error) bool {
	var invalid x509.CertificateInvalidError
	return errors.As(err, &invalid) && invalid.Reason == x509.Expired
}

// compareClocks asks the hub for its time and says how it differs from the machine's. The answer is not verified, and only told.
func compareClocks(ctx context.Context, c *client) error {
	unverified := c.unverified()
	defer unverified.CloseIdleConnections()
	response, err := fetch(ctx, unverified, c, "/healthz")
	if err != nil {
		return fmt.Errorf("the hub's time is not known: %w", err)
	}
	response.Body.Close()
	theirs, err := http.ParseTime(response.Header.Get("Date"))
	if err != nil {
		return errors.New("the hub does not tell its time")
	}
	switch difference := time.Since(theirs).Round(time.Second); {
	case difference > sameClock:
		return fmt.Errorf("this machine's clock is %s ahead of the hub's; set it right", difference)
	case difference < -sameClock:
		return fmt.Errorf("this machine's clock is %s behind the hub's; set it right", -difference)
	}
	return errors.New("this machine and the hub agree about the time, so the hub's certificate has to be renewed")
}

func equal(a, b plans.SecretData) bool {
	if len(a) != len(b) {
		return false
	}
	for key, value := range a {
		if other, found := b[key]; !found || !bytes.Equal(value, other) {
			return false
		}
	}
	return true
}
