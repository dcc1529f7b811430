package sbom

// document and the types below are the part of SPDX 2.3 that is written, in its JSON form (https://spdx.github.io/spdx-spec/v2.3/).
type document struct {
	Version       string         `json:"spdxVersion"`
	DataLicense   string         `json:"dataLicense"`
	ID            string         `json:"SPDXID"`
	Name          string         `json:"name"`
	Namespace     string         `json:"documentNamespace"`
	Creation      creation       `json:"creationInfo"`
	Packages      []pkg          `json:"packages"`
	Relationships []relationship `json:"relationships"`
}

type creation struct {
	Created  string   `json:"created"`
	Creators []string `json:"creators"`
}

type pkg struct {
	ID               string      `json:"SPDXID"`
	Name             string      `json:"name"`
	Version          string      `json:"versionInfo,omitempty"`
	FileName         string      `json:"packageFileName,omitempty"`
	Purpose          string      `json:"primaryPackagePurpose,omitempty"`
	DownloadLocation string      `json:"downloadLocation"`
	FilesAnalyzed    bool        `json:"filesAnalyzed"`
	LicenseConcluded string      `json:"licenseConcluded"`
	LicenseDeclared  string      `json:"licenseDeclared"`
	Copyright        string      `json:"copyrightText"`
	SourceInfo       string      `json:"sourceInfo,omitempty"`
	Checksums        []checksum  `json:"checksums,omitempty"`
	References       []reference `json:"externalRefs,omitempty"`
}

type checksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type reference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type relationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// Terms of the specification.
const (
	documentID  = "SPDXRef-DOCUMENT"
	noAssertion = "NOASSERTION"
	describes   = "DESCRIBES"
	contains    = "CONTAINS"
	dependsOn   = "DEPENDS_ON"

	purposeArchive     = "ARCHIVE"
	purposeContainer   = "CONTAINER"
	purposeInstall     = "INSTALL"
	purposeApplication = "APPLICATION"
	purposeLibrary     = "LIBRARY"
	purposeFile        = "FILE"
)

// newPackage returns a package of which nothing is asserted but its name, version and package URL
// (https://github.com/package-url/purl-spec).
func newPackage(purpose, name, version, url string) pkg {
	p := pkg{
		Name: name, Version: version, Purpose: purpose, DownloadLocation: noAssertion, LicenseConcluded: noAssertion,
		LicenseDeclared: noAssertion, Copyright: noAssertion,
	}
	if url != "" {
		p.References = []reference{{Category: "PACKAGE-MANAGER", Type: "purl", Locator: url}}
	}
	return p
}
