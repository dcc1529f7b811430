package servingcert

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"

	"github.com/drover-dev/drover/hub/identity/pki"
)

// CARotationAnnotation, on the Secret SecretName, names the step of a rotation of the authority (docs/gateway.md). A hub acts on it when
// it starts.
const CARotationAnnotation = "rke.cattle.io/ca-rotation"

// The steps of a rotation.
const (
	// RotationPrepare creates a second authority, or takes that of the operator's Secret, unless somebody has put one there, and publishes it
	// beside the one in use.
	RotationPrepare = "prepare"
	// RotationSwitch makes the second authority the one in use. The previous one is still published.
	RotationSwitch = "switch"
	// RotationFinish ends the trust in the previous one.
	RotationFinish = "finish"
)

// The keys of the Secret that a rotation uses.
const (
	nextCertKey     = "ca-next.crt"
	nextKeyKey      = "ca-next.key"
	previousCertKey = "ca-previous.crt"
	// crossCertKey is the authority in use, signed by its predecessor, then that, signed by its own, and so on. All are sent with the
	// serving certificate, so that a machine that was off during rotations can still verify it.
	crossCertKey = "ca-cross.crt"
)

// rotate does the step that the Secret asks for, unless that is done already.
func (i *Identity) rotate(ctx context.Context, secret *corev1.Secret) (changed bool, err error) {
	switch step := secret.Annotations[CARotationAnnotation]; step {
	case "":
		return false, nil
	case RotationPrepare:
		if len(secret.Data[nextCertKey]) > 0 {
			_, err := pki.Parse(secret.Data[nextCertKey], secret.Data[nextKeyKey])
			return false, wrapKey(nextCertKey, err)
		}
		next := map[string][]byte{}
		if err := i.newAuthority(ctx, next); err != nil {
			return false, err
		}
		if bytes.Equal(next[caCertKey], secret.Data[caCertKey]) {
			return false, fmt.Errorf("--gateway-ca-secret: Secret %s/%s has the authority that is in use: put the next one there",
				i.namespace, i.caSecret)
		}
		secret.Data[nextCertKey], secret.Data[nextKeyKey] = next[caCertKey], next[caKeyKey]
		return true, nil
	case RotationSwitch:
		if len(secret.Data[nextCertKey]) == 0 {
			return false, nil
		}
		return true, i.switchCA(secret)
	case RotationFinish:
		if _, found := secret.Data[previousCertKey]; !found {
			return false, nil
		}
		delete(secret.Data, previousCertKey)
		return true, nil
	default:
		return false, fmt.Errorf("annotation %s: %q is not one of %s, %s and %s",
			CARotationAnnotation, step, RotationPrepare, RotationSwitch, RotationFinish)
	}
}

func (i *Identity) switchCA(secret *corev1.Secret) error {
	previous, err := pki.Parse(secret.Data[caCertKey], secret.Data[caKeyKey])
	if err != nil {
		return wrapKey(caCertKey, err)
	}
	next, err := pki.Parse(secret.Data[nextCertKey], secret.Data[nextKeyKey])
	if err != nil {
		return wrapKey(nextCertKey, err)
	}
	if !next.Cert.IsCA {
		return wrapKey(nextCertKey, fmt.Errorf("the certificate %q is not one of an authority", next.Cert.Subject.CommonName))
	}
	cross, err := pki.CrossSign(next, previous, i.now())
	if err != nil {
		return err
	}
	secret.Data[previousCertKey] = secret.Data[caCertKey]
	secret.Data[caCertKey], secret.Data[caKeyKey] = secret.Data[nextCertKey], secret.Data[nextKeyKey]
	secret.Data[crossCertKey] = append(pki.EncodeCert(cross), secret.Data[crossCertKey]...)
	delete(secret.Data, nextCertKey)
	delete(secret.Data, nextKeyKey)
	return nil
}

func wrapKey(key string, err error) error {
	if err != nil {
		return fmt.Errorf("reading %s: %w", key, err)
	}
	return nil
}

// bundle is what machines must trust. A single authority is published byte for byte as it is, since commands hold its checksum.
func bundle(secret *corev1.Secret) []byte {
	if len(secret.Data[nextCertKey]) == 0 && len(secret.Data[previousCertKey]) == 0 {
		return secret.Data[caCertKey]
	}
	var out bytes.Buffer
	for _, key := range []string{caCertKey, nextCertKey, previousCertKey} {
		if content := bytes.TrimSpace(secret.Data[key]); len(content) > 0 {
			out.Write(content)
			out.WriteByte('\n')
		}
	}
	return out.Bytes()
}

// chain is what is sent with the serving certificate: the leaf, and the cross-signed authorities up to the first that is not valid.
func chain(secret *corev1.Secret, leaf []byte, ca *pki.Pair, now time.Time) [][]byte {
	out := [][]byte{leaf}
	crosses, _ := certutil.ParseCertsPEM(secret.Data[crossCertKey]) // those before one that is damaged
	var previous *x509.Certificate
	for _, cross := range crosses {
		if now.After(cross.NotAfter) ||
			previous == nil && !bytes.Equal(cross.RawSubjectPublicKeyInfo, ca.Cert.RawSubjectPublicKeyInfo) ||
			previous != nil && previous.CheckSignatureFrom(cross) != nil {
			break
		}
		out, previous = append(out, cross.Raw), cross
	}
	return out
}
