package remote

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/drover-dev/drover/plans"
)

// explain adds what an operator can do about an error.
func explain(err error) error {
	var authority x509.UnknownAuthorityError
	var invalid x509.CertificateInvalidError
	var hostname x509.HostnameError
	switch {
	case errors.As(err, &authority):
		return fmt.Errorf("the hub's certificate is not signed by the CA of the connection info; register the machine again: %w", err)
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
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
