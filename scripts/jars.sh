# Jars of Maven Central, for scripts that need some. Read with `. "$(dirname -- "$0")/jars.sh"` where
# $checkout is the root of the checkout.

# jars NAME VARIABLE...: has Maven do what scripts/NAME/pom.xml says, with the variables as in -DNAME=VALUE.
# Returns 1 if it cannot. One at a time: Maven does not expect another in its folder of jars. It ends before
# optimised code of it would pay.
jars() (
    pom=$checkout/scripts/$1/pom.xml
    shift
    export MAVEN_OPTS="${MAVEN_OPTS--XX:TieredStopAtLevel=1 -XX:+UseSerialGC}"
    status=0
    flock "$checkout/.harrier/maven.lock" mvn -q -B -ntp -f "$pom" "$@" process-resources >&2 || status=1
    rm -rf "${pom%/*}/target"
    return "$status"
)
