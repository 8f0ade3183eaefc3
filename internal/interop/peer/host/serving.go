package host

import (
	"net"
	"os"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/group"
	"k8s.io/apiserver/pkg/authentication/request/bearertoken"
	"k8s.io/apiserver/pkg/authentication/token/tokenfile"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	genericserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/options"
	"k8s.io/apiserver/pkg/util/compatibility"
)

// token is the one that the server knows.
const token = "peer-admin"

// Serving is a port that is listened on already.
type Serving struct {
	url     string
	ca      []byte
	options *options.SecureServingOptionsWithLoopback
}

func listen(certificates string) (*Serving, error) {
	o := options.NewSecureServingOptions().WithLoopback()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	o.Listener, o.BindPort = l, l.Addr().(*net.TCPAddr).Port
	o.ServerCert.CertDirectory = certificates
	if err := o.MaybeDefaultWithSelfSignedCerts("localhost", nil, []net.IP{net.IPv4(127, 0, 0, 1)}); err != nil {
		return nil, err
	}
	ca, err := os.ReadFile(o.ServerCert.CertKey.CertFile)
	if err != nil {
		return nil, err
	}
	return &Serving{url: "https://" + l.Addr().String(), ca: ca, options: o}, nil
}

// Apply gives a server the port, the token, and leave for everything.
func (s *Serving) Apply(c *genericserver.Config) error {
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	if err := s.options.ApplyToConfig(c); err != nil {
		return err
	}
	c.Authentication.Authenticator = Tokens()
	c.Authentication.APIAudiences = authenticator.Audiences{"https://kubernetes.default.svc"}
	c.Authorization.Authorizer = authorizerfactory.NewAlwaysAllowAuthorizer()
	c.RuleResolver = authorizerfactory.NewAlwaysAllowAuthorizer()
	return nil
}

// Tokens knows the administrator.
func Tokens() authenticator.Request {
	return group.NewAuthenticatedGroupAdder(bearertoken.New(tokenfile.New(map[string]*user.DefaultInfo{
		token: {Name: "kubernetes-admin", Groups: []string{user.SystemPrivilegedGroup}},
	})))
}
