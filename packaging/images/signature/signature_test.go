package signature

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

func ecdsaKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func pkcs8(t *testing.T, key any) []byte {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// encrypt encrypts a key as cosign does.
func encrypt(t *testing.T, der, password []byte, change func(*encrypted)) []byte {
	t.Helper()
	e := encrypted{}
	e.KDF.Name, e.KDF.Salt = "scrypt", []byte("salt of thirty-two bytes 0123456")
	e.KDF.Params.N, e.KDF.Params.R, e.KDF.Params.P = 1<<10, 8, 1
	e.Cipher.Name, e.Cipher.Nonce = "nacl/secretbox", []byte("twenty-four bytes 012345")
	derived, err := scrypt.Key(password, e.KDF.Salt, e.KDF.Params.N, e.KDF.Params.R, e.KDF.Params.P, 32)
	if err != nil {
		t.Fatal(err)
	}
	e.Ciphertext = secretbox.Seal(nil, der, (*[24]byte)(e.Cipher.Nonce), (*[32]byte)(derived))
	if change != nil {
		change(&e)
	}
	raw, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	return encode("ENCRYPTED SIGSTORE PRIVATE KEY", raw)
}

func TestParseKey(t *testing.T) {
	key := ecdsaKey(t)
	_, edwards, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	sec1, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		raw  []byte
		want interface{ Equal(crypto.PrivateKey) bool }
	}{
		"PKCS #8":          {encode("PRIVATE KEY", pkcs8(t, key)), key},
		"PKCS #8, Ed25519": {encode("PRIVATE KEY", pkcs8(t, edwards)), edwards},
		"SEC 1":            {encode("EC PRIVATE KEY", sec1), key},
		"cosign":           {encrypt(t, pkcs8(t, key), []byte("secret"), nil), key},
	} {
		got, err := ParseKey(test.raw, []byte("secret"))
		if err != nil || !test.want.Equal(got) {
			t.Errorf("%s: got %v, %v", name, got, err)
		}
	}
}

func TestParseKeyErrors(t *testing.T) {
	key := pkcs8(t, ecdsaKey(t))
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	for want, raw := range map[string][]byte{
		"must be a private key in PEM":             []byte("key"),
		`got "PUBLIC KEY"`:                         encode("PUBLIC KEY", nil),
		"must be an ECDSA or Ed25519 key":          encode("PRIVATE KEY", pkcs8(t, rsaKey)),
		"the password in COSIGN_PASSWORD is wrong": encrypt(t, key, []byte("other"), nil),
		"decoding the encrypted key":               encode("ENCRYPTED COSIGN PRIVATE KEY", []byte("{")),
		"unknown encryption argon2 with":           encrypt(t, key, []byte("secret"), func(e *encrypted) { e.KDF.Name = "argon2" }),
		"are out of range: N=1073741824, r=8, p=1": encrypt(t, key, []byte("secret"), func(e *encrypted) { e.KDF.Params.N = 1 << 30 }),
		"unknown encryption scrypt with nacl":      encrypt(t, key, []byte("secret"), func(e *encrypted) { e.Cipher.Nonce = nil }),
	} {
		if got, err := ParseKey(raw, []byte("secret")); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, %v; want %q", got, err, want)
		}
	}
}

// signatures returns the annotated signatures of a digest, and their payloads.
func signatures(t *testing.T, repository name.Repository, digest v1.Hash) (made [][]byte, payloads []string) {
	t.Helper()
	img, err := remote.Image(repository.Tag("sha256-" + digest.Hex + ".sig"))
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := img.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range manifest.Layers {
		raw, err := base64.StdEncoding.DecodeString(descriptor.Annotations[signatureAnnotation])
		if err != nil {
			t.Fatal(err)
		}
		layer, err := img.LayerByDigest(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		in, err := layer.Compressed()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		made, payloads = append(made, raw), append(payloads, string(content))
	}
	return made, payloads
}

func TestSign(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://")+"/drover/hub", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	first := ecdsaKey(t)
	public, second, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	// The second time is after an interrupted release: it must not add another signature.
	for _, key := range []crypto.Signer{first, second, first, second} {
		if err := Sign(context.Background(), key, repository, []v1.Hash{digest}); err != nil {
			t.Fatal(err)
		}
	}
	made, payloads := signatures(t, repository, digest)
	want := `{"critical":{"identity":{"docker-reference":"` + repository.Name() + `"},"image":{"docker-manifest-digest":"` + digest.String() +
		`"},"type":"cosign container image signature"},"optional":null}`
	if diff := cmp.Diff([]string{want, want}, payloads); diff != "" {
		t.Fatalf("payloads (-want +got):\n%s", diff)
	}
	if sum := sha256.Sum256([]byte(want)); !ecdsa.VerifyASN1(&first.PublicKey, sum[:], made[0]) {
		t.Error("the signature of the ECDSA key is not valid")
	}
	if !ed25519.Verify(public, []byte(want), made[1]) {
		t.Error("the signature of the Ed25519 key is not valid")
	}
}

func TestSignReportsTheImage(t *testing.T) {
	server := httptest.NewServer(nil)
	server.Close()
	repository, err := name.NewRepository(strings.TrimPrefix(server.URL, "http://")+"/drover/hub", name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	digest := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("ab", 32)}
	err = Sign(context.Background(), ecdsaKey(t), repository, []v1.Hash{digest})
	if err == nil || !strings.Contains(err.Error(), "signing "+repository.Digest(digest.String()).String()+": reading the signatures: ") {
		t.Errorf("error is %v", err)
	}
}
