package main

import (
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSignBlob(t *testing.T) {
	key, file := keyFile(t), filepath.Join(t.TempDir(), "sha256sums.txt")
	content := []byte("content of the file\n")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	var made []string
	for range 2 {
		if out, _, err := run(t, "sign-blob", "--key="+key, file); err != nil || out != file+".sig\n" {
			t.Fatalf("output %q, %v", out, err)
		}
		raw, err := os.ReadFile(file + ".sig")
		if err != nil {
			t.Fatal(err)
		}
		made = append(made, strings.TrimSpace(string(raw)))
	}
	if made[0] != made[1] {
		t.Errorf("the second signature is %s, the first one %s", made[1], made[0])
	}
	raw, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(raw)
	private, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	decoded, err := base64.StdEncoding.DecodeString(made[0])
	if err != nil {
		t.Fatal(err)
	}
	public, sum := &private.(*ecdsa.PrivateKey).PublicKey, sha256.Sum256(content)
	if !ecdsa.VerifyASN1(public, sum[:], decoded) {
		t.Error("the signature is not valid")
	}
	if sum := sha256.Sum256([]byte("other")); ecdsa.VerifyASN1(public, sum[:], decoded) {
		t.Error("the signature is valid for other content")
	}
}

func TestSignBlobErrors(t *testing.T) {
	key := keyFile(t)
	for want, args := range map[string][]string{
		`required flag(s) "key" not set`: {"file"},
		"accepts 1 arg(s), received 0":   {"--key=" + key},
		"--key: open /none":              {"--key=/none", key},
		"open /none: no such file":       {"--key=" + key, "/none"},
		"must be a private key in PEM":   {"--key=signblob_test.go", key},
	} {
		if _, _, err := run(t, append([]string{"sign-blob"}, args...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s gives %v, want %q", args, err, want)
		}
	}
}
