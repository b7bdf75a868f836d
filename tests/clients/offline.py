"""Commands that have no network: what users do with a clone of the repository, once their tools have the dependencies."""
import os


def offline(*command):
    """The command in a network of its own, in which there is nothing."""
    own_user = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--net", *own_user, "--", *(str(each) for each in command)]
