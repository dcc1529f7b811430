// Package sbom lists what is in a container image, a package or an archive of static Go programs, as an SPDX 2.3 document. It reads the
// files themselves, and the build information that Go puts into each program: what it lists is what is there. The same files give the same
// document.
package sbom

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// MediaType of the documents, also as type of an OCI artifact.
const MediaType = "application/spdx+json"

// Image is an image that is listed.
type Image struct {
	v1.Image
	// Repository is its name without a registry.
	Repository string
	Subject
}

// Subject is what all documents have in common.
type Subject struct {
	// Arch is its architecture as Go names it.
	Arch string
	// Version is that of the release, and of the programs of Module in it.
	Version string
	// License is the SPDX expression of the programs of Module.
	License string
	// Module is the Go module whose version is Version. Go does not know that version itself when it builds from a checkout.
	Module string
	// Certificates is the version of Debian's package ca-certificates, whose certificates are in the image; empty if they are from elsewhere.
	Certificates string
	// Created is the time of the document.
	Created time.Time
	// Tool is what creates the document.
	Tool string
}

// bundle is where images have the certificate authorities.
const bundle = "etc/ssl/certs/ca-certificates.crt"

// builder collects packages and relationships. Each package is listed once, however many programs depend on it.
type builder struct {
	subject  Subject
	document document
	listed   map[string]bool
}

// Generate returns the document of an image.
func Generate(i Image) ([]byte, error) {
	digest, err := i.Digest()
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", i.Repository, err)
	}
	root := newPackage(purposeContainer, i.Repository, i.Version, "pkg:oci/"+path.Base(i.Repository)+"@"+
		escape(digest.String())+"?arch="+i.Arch+"&tag="+escape(strings.ReplaceAll(i.Version, "+", "-")))
	root.Checksums = []checksum{{"SHA256", digest.Hex}}
	return i.generate(root, func(visit func(file)) error { return readImage(i, visit) })
}

// generate returns the document of what root says, with the files that read visits.
func (s Subject) generate(root pkg, read func(visit func(file)) error) ([]byte, error) {
	root.LicenseDeclared = s.License
	b := &builder{subject: s, listed: map[string]bool{}, document: document{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID,
		Name: root.Name + " " + root.Version + " linux/" + s.Arch,
		// A namespace is an identifier and need not be an address; the digest makes it unique.
		Namespace: "https://github.com/drover-dev/drover/sbom/" + path.Base(root.Name) + "-" + root.Checksums[0].Value,
		Creation:  creation{Created: s.Created.UTC().Format(time.RFC3339), Creators: []string{"Tool: " + s.Tool}},
	}}
	id := b.add(root)
	b.relate(documentID, describes, id)
	if err := read(func(f file) { b.addFile(id, f) }); err != nil {
		return nil, fmt.Errorf("listing %s: %w", root.Name, err)
	}
	raw, err := json.MarshalIndent(b.document, "", "  ")
	return append(raw, '\n'), err
}

// add lists a package and returns its ID.
func (b *builder) add(p pkg) string {
	key := p.Purpose + " " + p.Name + " " + p.Version + " " + p.FileName
	sum := sha256.Sum256([]byte(key))
	p.ID = "SPDXRef-" + unusable.ReplaceAllString(p.Name, "-") + "-" + hex.EncodeToString(sum[:6])
	if !b.listed[p.ID] {
		b.listed[p.ID] = true
		b.document.Packages = append(b.document.Packages, p)
	}
	return p.ID
}

// unusable are the characters that an ID may not have.
var unusable = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

func (b *builder) relate(from, kind, to string) {
	if r := (relationship{from, kind, to}); !slices.Contains(b.document.Relationships, r) {
		b.document.Relationships = append(b.document.Relationships, r)
	}
}

// addFile lists a file of the image or package, and what it was built from.
func (b *builder) addFile(root string, f file) {
	var p pkg
	switch {
	case f.info != nil:
		version := f.info.Main.Version
		if f.info.Main.Path == b.subject.Module {
			version = b.subject.Version
		}
		p = newPackage(purposeApplication, path.Base(f.path), version, goURL(f.info.Path, version))
		p.SourceInfo = "main package " + f.info.Path + ", " + f.info.GoVersion + describe(f.info)
		if f.info.Main.Path == b.subject.Module {
			p.LicenseDeclared = b.subject.License
		}
	case f.path == bundle && b.subject.Certificates != "":
		p = newPackage(purposeFile, "ca-certificates", b.subject.Certificates,
			"pkg:deb/debian/ca-certificates@"+escape(b.subject.Certificates)+"?arch=all")
		p.SourceInfo = "certificates of Debian's package ca-certificates"
	default:
		p = newPackage(purposeFile, path.Base(f.path), "", "")
	}
	p.FileName = "/" + f.path
	p.Checksums = []checksum{{"SHA256", f.sha256}}
	id := b.add(p)
	b.relate(root, contains, id)
	if f.info == nil {
		return
	}
	for _, m := range modules(f.info) {
		b.relate(id, dependsOn, b.add(m))
	}
}

// goURL is the package URL of a Go package.
func goURL(name, version string) string {
	if version == "" || version == "(devel)" {
		return "pkg:golang/" + name
	}
	return "pkg:golang/" + name + "@" + escape(version)
}

// escape escapes a component of a package URL, in which "+" must not stand for itself.
func escape(component string) string { return url.QueryEscape(component) }
