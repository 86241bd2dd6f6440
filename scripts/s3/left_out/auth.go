// Package auth, the part that is left out of versitygw: accounts kept elsewhere, which bring along the
// clients of what they are kept in.
package auth

import "errors"

var errLeftOut = errors.New("this kind of accounts is left out")

// IAMServiceStandaloneConfig has the fields that the package sets.
type IAMServiceStandaloneConfig struct {
	Endpoint, Access, Secret, ClientCert, ClientCertKey, ServerCA, Region string
	DefaultUserID, DefaultGroupID, DefaultProjectID                       int
}

func NewIAMServiceStandalone(Account, IAMServiceStandaloneConfig) (IAMService, error) {
	return nil, errLeftOut
}

func NewLDAPService(Account, ...any) (IAMService, error) { return nil, errLeftOut }

func NewS3(Account, ...any) (IAMService, error) { return nil, errLeftOut }

func NewVaultIAMService(Account, ...any) (IAMService, error) { return nil, errLeftOut }

func NewIpaIAMService(Account, ...any) (IAMService, error) { return nil, errLeftOut }
