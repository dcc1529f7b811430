package pki

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// StoredError is returned for content of a Secret of the hub that only an operator can correct.
type StoredError struct{ Err error }

func (e StoredError) Error() string { return e.Err.Error() }
func (e StoredError) Unwrap() error { return e.Err }

// KeySecret says where a key of the hub is, and what for.
type KeySecret struct {
	// Namespace and Name name the Secret, which its package alone writes.
	Namespace, Name string
	// DataKey holds the ed25519 private key, PKCS #8 in PEM, as "openssl genpkey -algorithm ed25519" writes it.
	DataKey string
	// Purpose completes "the key for ..." in errors.
	Purpose string
}

// Ensure reads the key, and creates it if its Secret does not exist. It may run in several replicas at once. A key that cannot be read is
// an error and is never replaced, since others hold its public half or what it has signed.
func (k KeySecret) Ensure(ctx context.Context, c client.Client) (ed25519.PrivateKey, error) {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
	err := c.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if secret, err = k.create(); err != nil {
			return nil, err
		}
		if err = c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			// Another replica was faster: its key is used.
			err = c.Get(ctx, name, secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key for %s, Secret %s: %w", k.Purpose, name, err)
	}
	parsed, err := ParseKey(secret.Data[k.DataKey])
	key, isEd25519 := parsed.(ed25519.PrivateKey)
	if err == nil && !isEd25519 {
		err = fmt.Errorf("the key is a %T and not an ed25519 key", parsed)
	}
	if err != nil {
		return nil, StoredError{fmt.Errorf("reading the key for %s, Secret %s, key %s, which others rely on and which is therefore not "+
			"replaced: %w", k.Purpose, name, k.DataKey, err)}
	}
	return key, nil
}

func (k KeySecret) create() (*corev1.Secret, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generating the key for %s: %w", k.Purpose, err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key for %s: %w", k.Purpose, err)
	}
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: k.Namespace, Name: k.Name},
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{k.DataKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})},
	}, nil
}
