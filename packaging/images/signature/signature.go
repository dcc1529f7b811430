// Package signature signs images with a key, in the format that "cosign verify" reads from a registry: an image beside the signed one,
// whose tag names the signed digest (https://github.com/sigstore/cosign/blob/main/specs/SIGNATURE_SPEC.md). It signs files for "cosign
// verify-blob". Nothing is sent to a transparency log.
package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	payloadType         = types.MediaType("application/vnd.dev.cosign.simplesigning.v1+json")
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	// payloadKind is what the specification wants, whatever signs.
	payloadKind = "cosign container image signature"
)

// payload is what is signed.
type payload struct {
	Critical critical          `json:"critical"`
	Optional map[string]string `json:"optional"`
}

type critical struct {
	Identity identity `json:"identity"`
	Image    image    `json:"image"`
	Type     string   `json:"type"`
}

type identity struct {
	Reference string `json:"docker-reference"`
}

type image struct {
	Digest string `json:"docker-manifest-digest"`
}

// Sign signs the images or indexes of these digests in one repository. A digest that the key has already signed there is left as it is;
// signatures of other keys stay.
func Sign(ctx context.Context, key crypto.Signer, repository name.Repository, digests []v1.Hash, opts ...remote.Option) error {
	opts = append([]remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}, opts...)
	for _, digest := range digests {
		if err := sign(key, repository, digest, opts); err != nil {
			return fmt.Errorf("signing %s: %w", repository.Digest(digest.String()), err)
		}
	}
	return nil
}

func sign(key crypto.Signer, repository name.Repository, digest v1.Hash, opts []remote.Option) error {
	content, err := json.Marshal(payload{Critical: critical{
		Identity: identity{repository.Name()}, Image: image{digest.String()}, Type: payloadKind,
	}})
	if err != nil {
		return err
	}
	tag := repository.Tag(digest.Algorithm + "-" + digest.Hex + ".sig")
	existing, err := remote.Image(tag, opts...)
	if missing := new(transport.Error); errors.As(err, &missing) && missing.StatusCode == http.StatusNotFound {
		existing, err = mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), nil
	}
	if err != nil {
		return fmt.Errorf("reading the signatures: %w", err)
	}
	signed, err := isSigned(existing, key.Public(), content)
	if err != nil || signed {
		return err
	}
	made, err := signContent(key, content)
	if err != nil {
		return err
	}
	extended, err := mutate.Append(existing, mutate.Addendum{
		Layer:       static.NewLayer(content, payloadType),
		Annotations: map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(made)},
	})
	if err != nil {
		return err
	}
	return remote.Write(tag, extended, opts...)
}

// maxPayload bounds what is read of a registry's signatures; this package's own have about 300 bytes.
const maxPayload = 64 << 10

// isSigned reports whether one of the signatures is valid for the content with this key.
func isSigned(signatures v1.Image, key crypto.PublicKey, content []byte) (bool, error) {
	manifest, err := signatures.Manifest()
	if err != nil {
		return false, fmt.Errorf("reading the signatures: %w", err)
	}
	for _, descriptor := range manifest.Layers {
		made, err := base64.StdEncoding.DecodeString(descriptor.Annotations[signatureAnnotation])
		if err != nil || descriptor.MediaType != payloadType || descriptor.Size > maxPayload {
			continue
		}
		layer, err := signatures.LayerByDigest(descriptor.Digest)
		if err != nil {
			return false, fmt.Errorf("reading the signatures: %w", err)
		}
		in, err := layer.Compressed()
		if err != nil {
			return false, fmt.Errorf("reading the signatures: %w", err)
		}
		found, err := io.ReadAll(in)
		if err = errors.Join(err, in.Close()); err != nil {
			return false, fmt.Errorf("reading the signatures: %w", err)
		}
		if string(found) == string(content) && valid(key, content, made) {
			return true, nil
		}
	}
	return false, nil
}

// SignBlob signs the content of a file. The signature is what "cosign sign-blob" prints: base64, for "cosign verify-blob --signature".
func SignBlob(key crypto.Signer, content []byte) (string, error) {
	made, err := signContent(key, content)
	return base64.StdEncoding.EncodeToString(made), err
}

// signContent signs in the way that sigstore's verifiers expect of the key's kind. Without a source of randomness, signatures of ECDSA are
// those of RFC 6979: the same content and key give the same signature.
func signContent(key crypto.Signer, content []byte) ([]byte, error) {
	if _, ok := key.(ed25519.PrivateKey); ok {
		return key.Sign(nil, content, crypto.Hash(0))
	}
	sum := sha256.Sum256(content)
	return key.Sign(nil, sum[:], crypto.SHA256)
}

func valid(key crypto.PublicKey, content, made []byte) bool {
	switch key := key.(type) {
	case ed25519.PublicKey:
		return ed25519.Verify(key, content, made)
	case *ecdsa.PublicKey:
		sum := sha256.Sum256(content)
		return ecdsa.VerifyASN1(key, sum[:], made)
	}
	return false
}
