package signature

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"

	"golang.org/x/crypto/nacl/secretbox"
	"golang.org/x/crypto/scrypt"
)

// Types of PEM blocks that "cosign generate-key-pair" writes, the second one before version 2.
var encryptedTypes = map[string]bool{"ENCRYPTED SIGSTORE PRIVATE KEY": true, "ENCRYPTED COSIGN PRIVATE KEY": true}

// maxScryptMemory bounds what a key file can make this program allocate; keys of cosign need 32 MiB.
const maxScryptMemory = 256 << 20

// encrypted is the content of an encrypted key: the format of the Go library go-securesystemslib.
type encrypted struct {
	KDF struct {
		Name   string `json:"name"`
		Params struct {
			N int `json:"N"`
			R int `json:"r"`
			P int `json:"p"`
		} `json:"params"`
		Salt []byte `json:"salt"`
	} `json:"kdf"`
	Cipher struct {
		Name  string `json:"name"`
		Nonce []byte `json:"nonce"`
	} `json:"cipher"`
	Ciphertext []byte `json:"ciphertext"`
}

// ParseKey reads a private key in PEM: one of "cosign generate-key-pair", which the password decrypts, or a PKCS #8 or SEC 1 key without a
// password. The key is ECDSA or Ed25519.
func ParseKey(raw, password []byte) (crypto.Signer, error) {
	block, _ := pem.Decode(raw)
	if block == nil {
		return nil, errors.New("must be a private key in PEM, such as cosign.key of cosign generate-key-pair")
	}
	der := block.Bytes
	switch {
	case encryptedTypes[block.Type]:
		var err error
		if der, err = decrypt(der, password); err != nil {
			return nil, err
		}
	case block.Type == "EC PRIVATE KEY":
		return x509.ParseECPrivateKey(der)
	case block.Type != "PRIVATE KEY":
		return nil, fmt.Errorf("must be a private key without encryption or of cosign generate-key-pair, got %q", block.Type)
	}
	key, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, err
	}
	switch key := key.(type) {
	case *ecdsa.PrivateKey:
		return key, nil
	case ed25519.PrivateKey:
		return key, nil
	}
	return nil, fmt.Errorf("must be an ECDSA or Ed25519 key, got %T", key)
}

func decrypt(raw, password []byte) ([]byte, error) {
	var e encrypted
	if err := json.Unmarshal(raw, &e); err != nil {
		return nil, fmt.Errorf("decoding the encrypted key: %w", err)
	}
	p := e.KDF.Params
	if e.KDF.Name != "scrypt" || e.Cipher.Name != "nacl/secretbox" || len(e.Cipher.Nonce) != 24 {
		return nil, fmt.Errorf("unknown encryption %s with %s; create the key with cosign generate-key-pair", e.KDF.Name, e.Cipher.Name)
	}
	if p.N <= 0 || p.R <= 0 || p.P <= 0 || p.P > 16 || p.R > maxScryptMemory/128 || p.N > maxScryptMemory/128/p.R {
		return nil, fmt.Errorf("scrypt parameters of the encrypted key are out of range: N=%d, r=%d, p=%d", p.N, p.R, p.P)
	}
	derived, err := scrypt.Key(password, e.KDF.Salt, p.N, p.R, p.P, 32)
	if err != nil {
		return nil, fmt.Errorf("deriving the key from the password: %w", err)
	}
	content, ok := secretbox.Open(nil, e.Ciphertext, (*[24]byte)(e.Cipher.Nonce), (*[32]byte)(derived))
	if !ok {
		return nil, errors.New("the password in COSIGN_PASSWORD is wrong")
	}
	return content, nil
}
