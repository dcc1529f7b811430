// Package keysecret keeps ed25519 keys of the hub's own in Secrets of the system namespace. It makes a key once and never replaces it, since
// others hold its public half or what it has signed. What a key is for is its caller's business.
package keysecret

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Key says where a key is and what it is for.
type Key struct {
	Namespace, Name string
	// DataKey holds the private key, PKCS #8 in PEM, as "openssl genpkey -algorithm ed25519" makes it.
	DataKey string
	// Purpose completes "the key for ..." in errors.
	Purpose string
}

// Ensure reads the key, and makes it where its Secret does not exist. It may run in several replicas at once. A key that cannot be read is an
// error.
func (k Key) Ensure(ctx context.Context, c client.Client) (ed25519.PrivateKey, error) {
	secret := &corev1.Secret{}
	name := client.ObjectKey{Namespace: k.Namespace, Name: k.Name}
	err := c.Get(ctx, name, secret)
	if apierrors.IsNotFound(err) {
		if secret, err = k.make(); err != nil {
			return nil, err
		}
		if err = c.Create(ctx, secret); apierrors.IsAlreadyExists(err) {
			// Another replica was faster: its key is the one.
			err = c.Get(ctx, name, secret)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("reading the key for %s, Secret %s: %w", k.Purpose, name, err)
	}
	key, err := parse(secret.Data[k.DataKey])
	if err != nil {
		return nil, fmt.Errorf("reading the key for %s, Secret %s, key %s, which others rely on and which is therefore not replaced: %w",
			k.Purpose, name, k.DataKey, err)
	}
	return key, nil
}

func (k Key) make() (*corev1.Secret, error) {
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making the key for %s: %w", k.Purpose, err)
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

func parse(raw []byte) (ed25519.PrivateKey, error) {
	block, _ := pem.Decode(raw)
	if block == nil || block.Type != "PRIVATE KEY" {
		return nil, errors.New("no PEM block with a private key")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the PEM block holds no private key of PKCS #8") // the cause could quote it
	}
	key, ok := parsed.(ed25519.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("the key is a %T and not an ed25519 key", parsed)
	}
	return key, nil
}
